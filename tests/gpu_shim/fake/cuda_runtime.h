/* The part of CUDA's runtime that generated host functions use, on the CPU: device memory is memory, streams do their work at once, kernels run in the shim. */
#pragma once
#define __global__
#include "../shim.h"

/* a library's macros have a prefix */
#define RIGIDGRAD_ARENA ARENA
#define RIGIDGRAD_ATAN2 ATAN2
#define RIGIDGRAD_BID BID
#define RIGIDGRAD_BOTH BOTH
#define RIGIDGRAD_BOTH_PART BOTH_PART
#define RIGIDGRAD_DEVICE DEVICE
#define RIGIDGRAD_FIRST FIRST
#define RIGIDGRAD_FMA FMA
#define RIGIDGRAD_FROM FROM
#define RIGIDGRAD_GLOBAL GLOBAL
#define RIGIDGRAD_KERNEL template <int rigidgrad_once> void
#define RIGIDGRAD_LOCAL LOCAL
#define RIGIDGRAD_MEET MEET
#define RIGIDGRAD_NBLK NBLK
#define RIGIDGRAD_NTHR NTHR
#define RIGIDGRAD_PART PART
#define RIGIDGRAD_ROLLED ROLLED
#define RIGIDGRAD_SINCOS SINCOS
#define RIGIDGRAD_SQRT SQRT
#define RIGIDGRAD_SYNC SYNC
#define RIGIDGRAD_SYNC_ALL SYNC_ALL
#define RIGIDGRAD_TABLE TABLE
#define RIGIDGRAD_TABLE_OF_ENTRIES TABLE_OF_ENTRIES
#define RIGIDGRAD_TABLE_OF_GROUPS TABLE_OF_GROUPS
#define RIGIDGRAD_TEAM TEAM
#define RIGIDGRAD_THREADS THREADS
#define RIGIDGRAD_TID TID
#define RIGIDGRAD_UNROLL UNROLL

#include <cstring>

typedef int cudaError_t;
typedef struct shim_stream *cudaStream_t;
#ifndef SHIM_PROCESSORS
#define SHIM_PROCESSORS 4
#endif
enum { cudaSuccess = 0, cudaStreamNonBlocking = 1, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaDevAttrMultiProcessorCount = 16 };
static long shim_allocations, shim_streams, shim_copies;

static inline const char *cudaGetErrorString(cudaError_t) { return "an error"; }
static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
static inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaDeviceGetAttribute(int *value, int, int) { return *value = SHIM_PROCESSORS, cudaSuccess; }
static inline cudaError_t cudaMalloc(void **p, size_t bytes) { return *p = std::malloc(bytes), ++shim_allocations, cudaSuccess; }
static inline cudaError_t cudaMallocHost(void **p, size_t bytes) { return cudaMalloc(p, bytes); }
static inline cudaError_t cudaFree(void *p) { return std::free(p), --shim_allocations, cudaSuccess; }
static inline cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) { return *s = (cudaStream_t)std::malloc(1), ++shim_streams, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t s) { return std::free(s), --shim_streams, cudaSuccess; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, cudaStream_t) { return std::memcpy(to, from, bytes), ++shim_copies, cudaSuccess; }
static inline cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t) { return std::memset(to, value, bytes), cudaSuccess; }
static inline cudaError_t cudaFuncSetAttribute(const void *, int, int) { return cudaSuccess; }

/* At the end: nothing may be left, and the checker must have found nothing. */
struct shim_last_word {
  ~shim_last_word() {
    std::printf("left over: %ld allocations, %ld streams; %ld copies\n", shim_allocations, shim_streams, shim_copies);
    std::printf("races %ld, unwritten %ld, outside %ld, divergent %ld %s\n", shim_found.races, shim_found.unwritten, shim_found.outside, shim_found.divergent, shim_message);
  }
};
static shim_last_word shim_end;
#define RIGIDGRAD_LAUNCH(kernel, blocks, threads, shared, stream, ...) shim_launch(blocks, threads, 1, [&] { kernel(__VA_ARGS__); })
