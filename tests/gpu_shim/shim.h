/* Runs generated CUDA kernels on the CPU: every thread of a block is a fiber, barriers switch between them, and every access to shared memory is checked.
 *
 * Between two barriers a number may be read by many threads, or read and written by one; anything else is a race. Also found: numbers read before anyone wrote them,
 * addresses outside shared memory, and threads of a block at different barriers. Fibers run in ascending or descending order of their threads (`shim_order`),
 * so that a missing barrier also shows in the numbers in one of them.
 *
 * Blocks that wait for each other (`shim_launch_together`) run in turns, each up to where it waits. Of numbers in global memory that they exchange (TAKE, GIVE) the same is checked
 * as of shared memory, between blocks.
 */
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <unordered_map>
#include <utility>
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
  int waits; /* the line of the barrier it waits at, negative where it is one of blocks; 0: it has ended */
};
static std::vector<shim_fiber> shim_fibers;
static int shim_base; /* the first fiber of the block */
static void *shim_main;
static void (*shim_body)(void *);
static void *shim_argument;
static void shim_entry() {
  shim_body(shim_argument);
  shim_fibers[shim_base + shim_thread].waits = 0;
  for (;;) shim_switch(&shim_fibers[shim_base + shim_thread].place, shim_main);
}
static void shim_barrier(int line) {
  shim_fibers[shim_base + shim_thread].waits = line;
  shim_switch(&shim_fibers[shim_base + shim_thread].place, shim_main);
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

static void shim_prepare(int threads) {
  while ((int)shim_fibers.size() < shim_base + threads) shim_fibers.push_back({nullptr, (char *)aligned_alloc(64, shim_stack), 0});
  for (int t = 0; t < threads; ++t) {
    shim_fiber &fiber = shim_fibers[shim_base + t];
    void **place = (void **)(fiber.stack + shim_stack);
    *--place = nullptr;
    *--place = (void *)shim_entry;
    for (int k = 0; k < 6; ++k) *--place = nullptr;
    fiber.place = place;
  }
}
/* Runs a block to its end (0), to where it waits for others (1), or to where its threads are at different barriers (-1). */
static int shim_run_block() {
  for (;; ++shim_interval, ++shim_found.barriers) {
    for (int k = 0; k < shim_threads; ++k) {
      shim_thread = shim_order ? shim_threads - 1 - k : k;
      shim_switch(&shim_main, shim_fibers[shim_base + shim_thread].place);
    }
    const int waits = shim_fibers[shim_base].waits;
    for (int t = 1; t < shim_threads; ++t)
      if (shim_fibers[shim_base + t].waits != waits) {
        shim_note(&shim_found.divergent, "threads at different barriers, lines", waits, shim_fibers[shim_base + t].waits);
        return -1;
      }
    if (waits <= 0) return waits < 0;
  }
}
static void shim_set(int blocks, int threads, int order, void (*body)(void *), void *argument) {
  shim_order = order;
  shim_threads = threads;
  shim_blocks = blocks;
  shim_body = body;
  shim_argument = argument;
  shim_base = 0;
}
template <class F> static void shim_launch(int blocks, int threads, int order, F kernel) {
  shim_set(blocks, threads, order, [](void *f) { (*(F *)f)(); }, &kernel);
  for (shim_block = 0; shim_block < blocks; ++shim_block) {
    shim_size = 0;
    shim_interval = 1;
    shim_prepare(threads);
    if (shim_run_block()) return;
  }
}

/* --- blocks that wait for each other ---------------------------------------------------------------------------------------------------------- */

struct shim_state {
  std::vector<char> memory;
  std::vector<shim_mark> marks;
  unsigned interval;
  long size;
  bool waits;
  const void *place; /* of the barrier */
  int many;
};
struct shim_exchange {
  unsigned written, read; /* turns */
  int writer, reader;     /* blocks */
};
static std::vector<shim_state> shim_states;
static std::unordered_map<const void *, shim_exchange> shim_exchanged;
static unsigned shim_turn;

static void shim_meet(const void *place, int many, int line) {
  shim_states[shim_block].place = place;
  shim_states[shim_block].many = many;
  shim_barrier(-line);
}
static void shim_enter_or_leave(shim_state &block) {
  std::swap(shim_memory, block.memory);
  std::swap(shim_marks, block.marks);
  std::swap(shim_interval, block.interval);
  std::swap(shim_size, block.size);
}
template <class F> static void shim_launch_together(int blocks, int threads, int order, F kernel) {
  shim_set(blocks, threads, order, [](void *f) { (*(F *)f)(); }, &kernel);
  shim_states.assign(blocks, shim_state{{}, {}, 1, 0, true, nullptr, 0});
  shim_exchanged.clear();
  for (shim_base = 0; shim_base < blocks * threads; shim_base += threads) shim_prepare(threads);
  for (shim_turn = 1;; ++shim_turn) {
    std::unordered_map<const void *, int> there;
    for (int k = 0; k < blocks; ++k) {
      shim_block = order ? blocks - 1 - k : k;
      shim_state &block = shim_states[shim_block];
      if (!block.waits) continue;
      shim_base = shim_block * threads;
      shim_enter_or_leave(block);
      const int ends = shim_run_block();
      ++shim_interval;
      shim_enter_or_leave(block);
      if (ends < 0) return;
      block.waits = ends;
      if (ends) ++there[block.place];
    }
    if (there.empty()) return;
    for (const shim_state &block : shim_states)
      if (block.waits && there[block.place] != block.many) {
        shim_note(&shim_found.divergent, "blocks wait for others that never come", there[block.place], block.many);
        return;
      }
  }
}
template <class real> static real shim_take(const real *x) {
  shim_exchange &m = shim_exchanged.try_emplace(x, shim_exchange{0, 0, -1, -1}).first->second;
  if (m.written == shim_turn && m.writer != shim_block) shim_note(&shim_found.races, "read and written by blocks", shim_block, m.writer);
  m.reader = m.read == shim_turn && m.reader != shim_block ? -2 : shim_block;
  m.read = shim_turn;
  return *x;
}
template <class real> static void shim_give(real *x, real y) {
  shim_exchange &m = shim_exchanged.try_emplace(x, shim_exchange{0, 0, -1, -1}).first->second;
  if (m.written == shim_turn && m.writer != shim_block) shim_note(&shim_found.races, "written twice by blocks", shim_block, m.writer);
  if (m.read == shim_turn && m.reader != shim_block) shim_note(&shim_found.races, "written and read by blocks", shim_block, m.reader);
  m.written = shim_turn;
  m.writer = shim_block;
  *x = y;
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
#define MEET_BLOCKS(place, first, many) shim_meet(place, many, __LINE__);
#define TAKE(x, i) shim_take(&(x)[i])
#define GIVE(x, i, y) shim_give(&(x)[i], (real)(y))
#define UNROLL
#define ROLLED
#define FMA std::fma
#define SQRT std::sqrt
#define ATAN2 std::atan2
static inline void SINCOS(float x, float *s, float *c) { *s = std::sin(x), *c = std::cos(x); }
static inline void SINCOS(double x, double *s, double *c) { *s = std::sin(x), *c = std::cos(x); }
