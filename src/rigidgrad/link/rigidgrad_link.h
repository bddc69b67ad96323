/* States and controls between two processes, through shared memory: the side of C and C++.
 *
 *   #include "rigidgrad_link.h"
 *
 *   rg_link link;
 *   int trouble = rg_link_open(&link, "arm", RG_LINK_ROBOT, 14, 7, 64);
 *   if (trouble) { fprintf(stderr, "%s\n", rg_link_error(trouble)); return 1; }
 *   for (;;) {                                       // each millisecond
 *     rg_message reply;
 *     if (!rg_link_exchange(&link, t, x, &reply, u, 800000)) hold(u);   // none within 0.8 ms
 *     apply(u);
 *   }
 *   rg_link_close(&link);
 *
 * Nothing is allocated, no lock is taken, and rg_link_send never waits, whatever the other process
 * does, or if it has died. What it looks like in memory, and why no read is torn, is in
 * https://rigidgrad.org/link (docs/link.md). Needs GCC or Clang, a 64-bit machine and POSIX;
 * Linux has futexes, elsewhere a waiting process looks every 50 µs. Include it first, or compile
 * with -std=gnu99 or later. Generated functions are `static`: each source file may include it.
 */
#ifndef RIGIDGRAD_LINK_H
#define RIGIDGRAD_LINK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#if !defined(__GNUC__) || !defined(__LP64__)
#error "rigidgrad_link.h needs GCC or Clang and 64-bit pointers"
#endif
#if defined(__linux__) && !defined(__USE_MISC)
#error "include rigidgrad_link.h before all other headers, or compile with -std=gnu99 or later"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RG_LINK_UNUSED __attribute__((unused))
#endif
#define RG_LINK_FUNCTION static RG_LINK_UNUSED

/* The robot sends states and receives controls, the controller the other way round; an observer
 * sees both and takes nothing. One process at a time has a role. */
enum { RG_LINK_ROBOT = 0, RG_LINK_CONTROLLER = 1, RG_LINK_OBSERVER = 2 };

/* What rg_link_open returns. */
enum {
  RG_LINK_OK = 0,
  RG_LINK_NAME = 1,   /* a name is letters, digits, . _ - ; or a path with a slash */
  RG_LINK_FILE = 2,   /* the memory cannot be opened: see errno */
  RG_LINK_TAKEN = 3,  /* another process has this role */
  RG_LINK_SHAPE = 4,  /* it is there with other numbers of states, controls or slots */
  RG_LINK_DAMAGED = 5 /* the file is not such a memory, or another version of it */
};

/* A message: its number, from 1 on; the sender's time, s; the number of the last message that the
 * sender had received; how many messages before it were passed over. */
typedef struct {
  uint64_t number;
  double time;
  uint64_t answers;
  uint64_t skipped;
} rg_message;

/* One direction. */
typedef struct {
  unsigned char *memory;
  uint64_t width;  /* numbers in a message */
  uint64_t slots;  /* a power of two */
  uint64_t stride; /* bytes of a slot */
  uint64_t seen;   /* number of the last message that this process received */
} rg_channel;

typedef struct {
  int file;
  int role;
  int taking;           /* whether what is received is said to be */
  unsigned char *memory;
  size_t size;
  rg_channel out, in;   /* an observer: states, controls */
} rg_link;

/* The layout. All words have 64 bits, but the two of a futex.
 * The file: magic, version, bytes, slots, states, controls, offsets of the two channels.
 * A channel: head, the number of messages sent | tail, of those received | signal, asleep | slots.
 * A slot: its counter, 2n - 1 while message n is written and 2n when it is there; time, answers,
 * values. */
#define RG_LINK_MAGIC UINT64_C(0x6b6e696c64697267) /* "rgidlink" */
#define RG_LINK_VERSION UINT64_C(1)
#define RG_LINK_HEADER UINT64_C(128)
#define RG_LINK_TAIL UINT64_C(128)
#define RG_LINK_SIGNAL UINT64_C(256)
#define RG_LINK_ASLEEP UINT64_C(260)
#define RG_LINK_SLOTS UINT64_C(384)
#define RG_LINK_VALUES UINT64_C(24) /* bytes before the values of a slot */
#define RG_LINK_MOST UINT64_C(65536) /* numbers in a message, and slots */
#define RG_LINK_RETRIES 1000 /* reads that may fail while nothing is sent */
#define RG_LINK_PIECE INT64_C(50000) /* ns between looks where there are no futexes */

/* ---- words ---------------------------------------------------------------------------------- */

RG_LINK_FUNCTION uint64_t *rg_link_word(unsigned char *memory, uint64_t offset) {
  return (uint64_t *)(void *)(memory + offset);
}

RG_LINK_FUNCTION uint32_t *rg_link_half(unsigned char *memory, uint64_t offset) {
  return (uint32_t *)(void *)(memory + offset);
}

RG_LINK_FUNCTION unsigned char *rg_link_slot(const rg_channel *channel, uint64_t number) {
  return channel->memory + RG_LINK_SLOTS + (number & (channel->slots - 1)) * channel->stride;
}

/* Values pass as words: each load and store is atomic, so that to read while another process
 * writes is defined; whether they belong together, the counter tells. */
RG_LINK_FUNCTION uint64_t rg_link_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

RG_LINK_FUNCTION double rg_link_number(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* ---- one direction -------------------------------------------------------------------------- */

RG_LINK_FUNCTION uint64_t rg_channel_write(rg_channel *channel, double time, uint64_t answers,
                                           const double *values) {
  unsigned char *memory = channel->memory;
  const uint64_t number = __atomic_load_n(rg_link_word(memory, 0), __ATOMIC_RELAXED) + 1;
  unsigned char *slot = rg_link_slot(channel, number);
  /* the odd counter before any value, the even one and the head after all */
  __atomic_store_n(rg_link_word(slot, 0), 2 * number - 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  __atomic_store_n(rg_link_word(slot, 8), rg_link_bits(time), __ATOMIC_RELAXED);
  __atomic_store_n(rg_link_word(slot, 16), answers, __ATOMIC_RELAXED);
  for (uint64_t i = 0; i < channel->width; ++i)
    __atomic_store_n(rg_link_word(slot, RG_LINK_VALUES + 8 * i), rg_link_bits(values[i]),
                     __ATOMIC_RELAXED);
  __atomic_store_n(rg_link_word(slot, 0), 2 * number, __ATOMIC_RELEASE);
  __atomic_store_n(rg_link_word(memory, 0), number, __ATOMIC_RELEASE);
  /* either we see who sleeps, or who is about to sleep sees the head */
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (__atomic_load_n(rg_link_half(memory, RG_LINK_ASLEEP), __ATOMIC_RELAXED) != 0) {
    uint32_t *signal = rg_link_half(memory, RG_LINK_SIGNAL);
    __atomic_exchange_n(rg_link_half(memory, RG_LINK_ASLEEP), 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(signal, 1, __ATOMIC_SEQ_CST);
#ifdef __linux__
    (void)syscall(SYS_futex, signal, 1 /* FUTEX_WAKE */, INT_MAX, NULL, NULL, 0);
#endif
  }
  return number;
}

/* Whether a message can be sent that overwrites none that was not received. */
RG_LINK_FUNCTION int rg_channel_has_room(const rg_channel *channel) {
  const uint64_t head = __atomic_load_n(rg_link_word(channel->memory, 0), __ATOMIC_RELAXED);
  const uint64_t tail =
      __atomic_load_n(rg_link_word(channel->memory, RG_LINK_TAIL), __ATOMIC_ACQUIRE);
  return head - tail < channel->slots;
}

RG_LINK_FUNCTION int rg_channel_waits(const rg_channel *channel) {
  return __atomic_load_n(rg_link_word(channel->memory, 0), __ATOMIC_ACQUIRE) > channel->seen;
}

/* One try to copy message `number`: 1 if it is whole, 0 if it is overwritten. */
RG_LINK_FUNCTION int rg_channel_copy(const rg_channel *channel, uint64_t number,
                                     rg_message *message, double *values) {
  unsigned char *slot = rg_link_slot(channel, number);
  if (__atomic_load_n(rg_link_word(slot, 0), __ATOMIC_ACQUIRE) != 2 * number) return 0;
  message->time = rg_link_number(__atomic_load_n(rg_link_word(slot, 8), __ATOMIC_RELAXED));
  message->answers = __atomic_load_n(rg_link_word(slot, 16), __ATOMIC_RELAXED);
  for (uint64_t i = 0; i < channel->width; ++i)
    values[i] = rg_link_number(
        __atomic_load_n(rg_link_word(slot, RG_LINK_VALUES + 8 * i), __ATOMIC_RELAXED));
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(rg_link_word(slot, 0), __ATOMIC_RELAXED) == 2 * number;
}

/* The newest message, or the next one: 1, or 0 if there is none that was not seen, or -1 if the
 * counters make no sense (the memory is damaged). Of a writer that overtakes, the oldest message
 * that is left is read; that one, if it dies while it writes, leaves the others whole. */
RG_LINK_FUNCTION int rg_channel_read(rg_channel *channel, int newest, int taking,
                                     rg_message *message, double *values) {
  uint64_t last = 0, least = 0; /* the head at the last try; numbers before are overwritten */
  for (int stuck = 0; stuck < RG_LINK_RETRIES; ++stuck) {
    const uint64_t head = __atomic_load_n(rg_link_word(channel->memory, 0), __ATOMIC_ACQUIRE);
    uint64_t number = newest ? head : channel->seen + 1;
    if (head <= channel->seen) return 0;
    if (head != last) stuck = 0;
    last = head;
    if (head - number >= channel->slots) number = head - channel->slots + 1;
    if (number < least) number = least < head ? least : head;
    if (!rg_channel_copy(channel, number, message, values)) {
      least = number + 1;
      continue;
    }
    message->number = number;
    message->skipped = number - channel->seen - 1;
    channel->seen = number;
    if (taking)
      __atomic_store_n(rg_link_word(channel->memory, RG_LINK_TAIL), number, __ATOMIC_RELEASE);
    return 1;
  }
  return -1;
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Nanoseconds of the monotonic clock, which all processes of a machine share. */
RG_LINK_FUNCTION int64_t rg_link_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
}

RG_LINK_FUNCTION void rg_link_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

RG_LINK_FUNCTION struct timespec rg_link_span(int64_t nanoseconds) {
  struct timespec span;
  span.tv_sec = (time_t)(nanoseconds / 1000000000);
  span.tv_nsec = (long)(nanoseconds % 1000000000);
  return span;
}

/* Waits until there is a message that was not seen: 1, or 0 after `nanoseconds`. It spins for the
 * first `spin` of them, and sleeps then: a sleeper wakes some 5 to 50 µs late. */
RG_LINK_FUNCTION int rg_channel_wait(const rg_channel *channel, int64_t nanoseconds,
                                     int64_t spin) {
  const int64_t begin = rg_link_clock();
  for (;;) {
    for (int k = 0; k < 64; ++k) {
      if (rg_channel_waits(channel)) return 1;
      rg_link_pause();
    }
    const int64_t passed = rg_link_clock() - begin;
    if (passed >= nanoseconds) return rg_channel_waits(channel);
    if (passed < spin) continue;
#ifdef __linux__
    uint32_t *signal = rg_link_half(channel->memory, RG_LINK_SIGNAL);
    const uint32_t before = __atomic_load_n(signal, __ATOMIC_SEQ_CST);
    __atomic_exchange_n(rg_link_half(channel->memory, RG_LINK_ASLEEP), 1, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!rg_channel_waits(channel)) {
      const struct timespec span = rg_link_span(nanoseconds - passed);
      (void)syscall(SYS_futex, signal, 0 /* FUTEX_WAIT */, before, &span, NULL, 0);
    }
#else
    const int64_t left = nanoseconds - passed;
    const struct timespec span = rg_link_span(left < RG_LINK_PIECE ? left : RG_LINK_PIECE);
    nanosleep(&span, NULL);
#endif
  }
}

/* ---- who has which role: locks on bytes of the file, which end with their process ------------- */

#if defined(F_OFD_SETLK)
#define RG_LINK_SETLK F_OFD_SETLK
#define RG_LINK_SETLKW F_OFD_SETLKW
#define RG_LINK_GETLK F_OFD_GETLK
#else
#define RG_LINK_SETLK F_SETLK
#define RG_LINK_SETLKW F_SETLKW
#define RG_LINK_GETLK F_GETLK
#endif
enum { RG_LINK_MAKING = 2 }; /* the byte of who writes the header */

RG_LINK_FUNCTION int rg_link_lock(int file, int command, int kind, int byte) {
  struct flock lock;
  memset(&lock, 0, sizeof lock);
  lock.l_type = (short)kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  if (fcntl(file, command, &lock) != 0) return -1;
  return command == RG_LINK_GETLK ? lock.l_type != F_UNLCK : 0;
}

/* Whether a process has the other role: 1 or 0. */
RG_LINK_FUNCTION int rg_link_connected(const rg_link *link) {
  if (link->role == RG_LINK_OBSERVER) return 0;
  return rg_link_lock(link->file, RG_LINK_GETLK, F_WRLCK, 1 - link->role) == 1;
}

/* ---- opening -------------------------------------------------------------------------------- */

RG_LINK_FUNCTION const char *rg_link_error(int code) {
  switch (code) {
    case RG_LINK_OK: return "no error";
    case RG_LINK_NAME: return "a link's name is letters, digits, '.', '_' and '-', or a path";
    case RG_LINK_FILE: return "the link's memory cannot be opened: errno says why";
    case RG_LINK_TAKEN: return "another process has this role of the link";
    case RG_LINK_SHAPE: return "the link is there with other states, controls or slots";
    default: return "the link's memory is damaged, or of another version: remove it";
  }
}

RG_LINK_FUNCTION int rg_link_path(char *path, size_t size, const char *name) {
  static const char allowed[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
#ifdef __linux__
  const char *folder = "/dev/shm";
#else
  const char *folder = "/tmp";
#endif
  int length;
  if (strchr(name, '/') != NULL)
    length = snprintf(path, size, "%s", name);
  else if (name[0] != '\0' && name[strspn(name, allowed)] == '\0')
    length = snprintf(path, size, "%s/rigidgrad-%s", folder, name);
  else
    return RG_LINK_NAME;
  return length > 0 && (size_t)length < size ? RG_LINK_OK : RG_LINK_NAME;
}

RG_LINK_FUNCTION uint64_t rg_link_stride(uint64_t width) {
  return (RG_LINK_VALUES + 8 * width + 63) / 64 * 64;
}

RG_LINK_FUNCTION uint64_t rg_link_channel_bytes(uint64_t width, uint64_t slots) {
  return (RG_LINK_SLOTS + slots * rg_link_stride(width) + 127) / 128 * 128;
}

RG_LINK_FUNCTION int rg_link_attach(rg_link *link, uint64_t states, uint64_t controls,
                                    uint64_t slots) {
  const uint64_t first = RG_LINK_HEADER, second = first + rg_link_channel_bytes(states, slots);
  const uint64_t size = second + rg_link_channel_bytes(controls, slots);
  const uint64_t header[] = {RG_LINK_MAGIC, RG_LINK_VERSION, size,  slots,
                             states,        controls,        first, second};
  struct stat status;
  void *memory;
  int fresh;
  if (fstat(link->file, &status) != 0) return RG_LINK_FILE;
  if (!S_ISREG(status.st_mode)) return RG_LINK_DAMAGED;
  fresh = status.st_size == 0;
  if (fresh && ftruncate(link->file, (off_t)size) != 0) return RG_LINK_FILE;
  if (!fresh && (uint64_t)status.st_size < sizeof header) return RG_LINK_DAMAGED;
  if (!fresh) {
    uint64_t found[8];
    if (pread(link->file, found, sizeof found, 0) != (ssize_t)sizeof found) return RG_LINK_FILE;
    if (found[0] == 0) /* its maker died before it was whole */
      fresh = 1;
    else if (found[0] != RG_LINK_MAGIC || found[1] != RG_LINK_VERSION)
      return RG_LINK_DAMAGED;
    else if (memcmp(found, header, sizeof header) != 0)
      return RG_LINK_SHAPE;
    if (fresh && ftruncate(link->file, (off_t)size) != 0) return RG_LINK_FILE;
    if (!fresh && (uint64_t)status.st_size != size) return RG_LINK_DAMAGED;
  }
  memory = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, link->file, 0);
  if (memory == MAP_FAILED) return RG_LINK_FILE;
  link->memory = (unsigned char *)memory;
  link->size = (size_t)size;
  if (fresh) { /* the magic last; touching all pages, none is missing later */
    memset(link->memory, 0, link->size);
    for (int k = 7; k >= 0; --k)
      __atomic_store_n(rg_link_word(link->memory, 8 * (uint64_t)k), header[k], __ATOMIC_RELEASE);
  }
  {
    const int controller = link->role == RG_LINK_CONTROLLER;
    const rg_channel of_states = {link->memory + first, states, slots, rg_link_stride(states), 0};
    const rg_channel of_controls = {link->memory + second, controls, slots,
                                    rg_link_stride(controls), 0};
    link->out = controller ? of_controls : of_states;
    link->in = controller ? of_states : of_controls;
  }
  return RG_LINK_OK;
}

RG_LINK_FUNCTION void rg_link_close(rg_link *link) {
  if (link->memory != NULL) munmap(link->memory, link->size);
  if (link->file >= 0) close(link->file); /* and its lock with it */
  link->memory = NULL;
  link->file = -1;
}

/* Opens a link, and makes it if it is not there: `slots`, a power of two, is how many messages of
 * each direction it holds. What a process sent that has gone since is not received. */
RG_LINK_FUNCTION int rg_link_open(rg_link *link, const char *name, int role, uint64_t states,
                                  uint64_t controls, uint64_t slots) {
  char path[4096];
  int trouble = rg_link_path(path, sizeof path, name);
  memset(link, 0, sizeof *link);
  link->file = -1;
  link->role = role;
  link->taking = role != RG_LINK_OBSERVER;
  if (trouble) return trouble;
  if (states == 0 || controls == 0 || states > RG_LINK_MOST || controls > RG_LINK_MOST ||
      slots < 2 || slots > RG_LINK_MOST || (slots & (slots - 1)) != 0)
    return RG_LINK_SHAPE;
  link->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (link->file < 0) return RG_LINK_FILE;
  if (link->taking && rg_link_lock(link->file, RG_LINK_SETLK, F_WRLCK, role) != 0)
    trouble = errno == EAGAIN || errno == EACCES ? RG_LINK_TAKEN : RG_LINK_FILE;
  if (!trouble && rg_link_lock(link->file, RG_LINK_SETLKW, F_WRLCK, RG_LINK_MAKING) != 0)
    trouble = RG_LINK_FILE;
  if (!trouble) {
    trouble = rg_link_attach(link, states, controls, slots);
    (void)rg_link_lock(link->file, RG_LINK_SETLK, F_UNLCK, RG_LINK_MAKING);
  }
  if (trouble) {
    rg_link_close(link);
    return trouble;
  }
  if (link->taking) {
    uint64_t *tail = rg_link_word(link->in.memory, RG_LINK_TAIL);
    if (!rg_link_connected(link)) {
      __atomic_store_n(tail, __atomic_load_n(rg_link_word(link->in.memory, 0), __ATOMIC_ACQUIRE),
                       __ATOMIC_RELEASE);
    }
    link->in.seen = __atomic_load_n(tail, __ATOMIC_ACQUIRE);
  }
  return RG_LINK_OK;
}

/* ---- what loops call ------------------------------------------------------------------------ */

/* Sends `values` at `time`, s; never waits, and overwrites the oldest message. Its number. */
RG_LINK_FUNCTION uint64_t rg_link_send(rg_link *link, double time, const double *values) {
  return rg_channel_write(&link->out, time, link->in.seen, values);
}

/* The same, unless it would overwrite a message that the other process has not received: then 0,
 * and nothing is sent. So none is lost. */
RG_LINK_FUNCTION uint64_t rg_link_offer(rg_link *link, double time, const double *values) {
  return rg_channel_has_room(&link->out) ? rg_link_send(link, time, values) : 0;
}

/* The newest message; older ones that were not received are passed over, and counted in `skipped`.
 * 1, or 0 if there is none that was not seen, or -1 if the memory is damaged. */
RG_LINK_FUNCTION int rg_link_newest(rg_link *link, rg_message *message, double *values) {
  return rg_channel_read(&link->in, 1, link->taking, message, values);
}

/* The next message in order; `skipped` counts those that were overwritten before. */
RG_LINK_FUNCTION int rg_link_next(rg_link *link, rg_message *message, double *values) {
  return rg_channel_read(&link->in, 0, link->taking, message, values);
}

/* Waits for a message: 1, or 0 after `nanoseconds`; spins for the first `spin` of them. */
RG_LINK_FUNCTION int rg_link_wait(const rg_link *link, int64_t nanoseconds, int64_t spin) {
  return rg_channel_wait(&link->in, nanoseconds, spin);
}

/* Sends `values`, and waits for a message of the other process that rests upon them (or upon later
 * ones): 1, or 0 after `nanoseconds`, or -1 if the memory is damaged; `reply` is left alone then.
 * It spins, as a loop of a millisecond on a core of its own may. */
RG_LINK_FUNCTION int rg_link_exchange(rg_link *link, double time, const double *values,
                                      rg_message *message, double *reply, int64_t nanoseconds) {
  const int64_t end = rg_link_clock() + nanoseconds;
  const uint64_t number = rg_link_send(link, time, values);
  for (;;) {
    const int64_t left = end - rg_link_clock();
    const uint64_t head = __atomic_load_n(rg_link_word(link->in.memory, 0), __ATOMIC_ACQUIRE);
    if (head > link->in.seen) {
      unsigned char *slot = rg_link_slot(&link->in, head);
      if (__atomic_load_n(rg_link_word(slot, 16), __ATOMIC_RELAXED) >= number) {
        const int got = rg_link_newest(link, message, reply);
        if (got < 0 || (got && message->answers >= number)) return got;
        continue;
      }
      link->in.seen = head; /* it answers an older one */
    }
    if (left <= 0) return 0;
    (void)rg_channel_wait(&link->in, left, left);
  }
}

#ifdef __cplusplus
}
#endif
#endif
