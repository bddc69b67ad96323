/* Runs generated CUDA kernels on the CPU: every thread of a block is a fiber, barriers switch between them, and every access to shared memory is checked.
 *
 * Between two barriers a number may be read by many threads, or read and written by one; anything else is a race. Also found: numbers read before anyone wrote them,
 * addresses outside shared memory, and threads of a block at different barriers. Fibers run in ascending or descending order of their threads (`shim_order`),
 * so that a missing barrier also shows in the numbers in one of them.
 */
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

struct shim_report {
  long races, unwritten, outside, divergent, barriers;
};
static shim_report shim_found;
static char shim_message[256];
static int shim_order, shim_thread, shim_threads, shim_block, shim_blocks;

static void shim_note(long *count, const char *what, long place, int other) {
  if (++*count == 1) snprintf(shim_message, sizeof shim_message, "%s at %ld: thread %d, other %d", what, place, shim_thread, other);
}

/* --- fibers ------------------------------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
extern "C" void shim_switch(void **from, void *to);
asm(".text\n.globl shim_switch\nshim_switch:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
static const size_t shim_stack = 1 << 18;
struct shim_fiber {
  void *place;
  char *stack;
  int waits; /* the line of the barrier it waits at; 0: it has ended */
};
static std::vector<shim_fiber> shim_fibers;
static void *shim_main;
static void (*shim_body)(void *);
static void *shim_argument;
static void shim_entry() {
  shim_body(shim_argument);
  shim_fibers[shim_thread].waits = 0;
  for (;;) shim_switch(&shim_fibers[shim_thread].place, shim_main);
}
static void shim_barrier(int line) {
  shim_fibers[shim_thread].waits = line;
  shim_switch(&shim_fibers[shim_thread].place, shim_main);
}
#else
#error "the fibers of this shim are written for x86-64"
#endif

/* --- shared memory ------------------------------------------------------------------------------------------------------------------------ */

struct shim_mark {
  unsigned written, read; /* intervals between barriers, from 1; 0: never */
  int writer, reader;     /* threads; reader -2: several */
};
static std::vector<char> shim_memory;
static std::vector<shim_mark> shim_marks;
static unsigned shim_interval;
static long shim_size;

template <class real> static real *shim_arena(long n) {
  if (shim_size == 0) {
    shim_size = n;
    shim_marks.assign(n, shim_mark{0, 0, -1, -1});
    shim_memory.resize(n * sizeof(real) + 16);
    real *start = (real *)(((uintptr_t)shim_memory.data() + 15) & ~(uintptr_t)15);
    for (long k = 0; k < n; ++k) start[k] = std::numeric_limits<real>::quiet_NaN();
  }
  return (real *)(((uintptr_t)shim_memory.data() + 15) & ~(uintptr_t)15);
}
static bool shim_inside(long a) {
  if (a >= 0 && a < shim_size) return true;
  shim_note(&shim_found.outside, "outside shared memory", a, -1);
  return false;
}
template <class real> static real ld(const real *s, long a) {
  a += s - shim_arena<real>(0);
  if (!shim_inside(a)) return std::numeric_limits<real>::quiet_NaN();
  shim_mark &m = shim_marks[a];
  if (m.written == 0) shim_note(&shim_found.unwritten, "read before anyone wrote", a, -1);
  if (m.written == shim_interval && m.writer != shim_thread) shim_note(&shim_found.races, "read and written", a, m.writer);
  m.reader = m.read == shim_interval && m.reader != shim_thread ? -2 : shim_thread;
  m.read = shim_interval;
  return shim_arena<real>(0)[a];
}
template <class real> static void st(real *s, long a, real x) {
  a += s - shim_arena<real>(0);
  if (!shim_inside(a)) return;
  shim_mark &m = shim_marks[a];
  if (m.written == shim_interval && m.writer != shim_thread) shim_note(&shim_found.races, "written twice", a, m.writer);
  if (m.read == shim_interval && m.reader != shim_thread) shim_note(&shim_found.races, "written and read", a, m.reader);
  m.written = shim_interval;
  m.writer = shim_thread;
  shim_arena<real>(0)[a] = x;
}
template <class real> static void ld2(const real *s, long a, real *x) {
  if (a % 2) shim_note(&shim_found.outside, "pair at an odd address", a, -1);
  x[0] = ld(s, a);
  x[1] = ld(s, a + 1);
}
template <class real> static void st2(real *s, long a, const real *x) {
  if (a % 2) shim_note(&shim_found.outside, "pair at an odd address", a, -1);
  st(s, a, x[0]);
  st(s, a + 1, x[1]);
}
static void entry4(const unsigned short *table, int k, int *e) {
  for (int i = 0; i < 4; ++i) e[i] = table[4 * k + i];
}

/* --- blocks ------------------------------------------------------------------------------------------------------------------------------- */

template <class F> static void shim_launch(int blocks, int threads, int order, F kernel) {
  shim_order = order;
  shim_threads = threads;
  shim_blocks = blocks;
  shim_body = [](void *f) { (*(F *)f)(); };
  shim_argument = &kernel;
  while ((int)shim_fibers.size() < threads) shim_fibers.push_back({nullptr, (char *)aligned_alloc(64, shim_stack), 0});
  for (shim_block = 0; shim_block < blocks; ++shim_block) {
    shim_size = 0;
    shim_interval = 1;
    for (int t = 0; t < threads; ++t) {
      void **place = (void **)(shim_fibers[t].stack + shim_stack);
      *--place = nullptr;
      *--place = (void *)shim_entry;
      for (int k = 0; k < 6; ++k) *--place = nullptr;
      shim_fibers[t].place = place;
    }
    for (bool running = true; running; ++shim_interval, ++shim_found.barriers) {
      for (int k = 0; k < threads; ++k) {
        shim_thread = order ? threads - 1 - k : k;
        shim_switch(&shim_main, shim_fibers[shim_thread].place);
      }
      for (int t = 1; t < threads; ++t)
        if (shim_fibers[t].waits != shim_fibers[0].waits) {
          shim_note(&shim_found.divergent, "threads at different barriers, lines", shim_fibers[0].waits, shim_fibers[t].waits);
          return;
        }
      running = shim_fibers[0].waits != 0;
    }
    --shim_found.barriers; /* the end is none */
  }
}

/* --- what generated code is written in -------------------------------------------------------------------------------------------------------- */

#define RIGIDGRAD_OWN_PRELUDE
#define DEVICE static inline
#define PART static __attribute__((noinline))
#ifndef KERNEL
#define KERNEL static void
#endif
#define BOTH static inline
#define BOTH_PART static __attribute__((noinline))
#define THREADS(n)
#define TEAM(n, many)
#define GLOBAL
#define LOCAL
#define TABLE static const
#define TABLE_OF_ENTRIES static const unsigned short
#define TABLE_OF_GROUPS static const unsigned
#define FROM
#define ARENA(name, n) real *name = shim_arena<real>(n)
#define TID shim_thread
#define NTHR shim_threads
#define BID shim_block
#define NBLK shim_blocks
#define SYNC shim_barrier(__LINE__);
#define SYNC_ALL shim_barrier(__LINE__);
#define FIRST(thread, team) ((TID - (thread)) & ((team) - 1))
#define MEET(team) SYNC
#define UNROLL
#define ROLLED
#define FMA std::fma
#define SQRT std::sqrt
#define ATAN2 std::atan2
static inline void SINCOS(float x, float *s, float *c) { *s = std::sin(x), *c = std::cos(x); }
static inline void SINCOS(double x, double *s, double *c) { *s = std::sin(x), *c = std::cos(x); }
