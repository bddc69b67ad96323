// Calls one of our kernels again and again, one state a call: what a C program would pay.
#include <stdint.h>

void loop(void (*rows)(void *context, int64_t begin, int64_t end), void *context, long repeats) {
  for (long r = 0; r < repeats; ++r) rows(context, 0, 1);
}
