// Runs one of our kernels over a batch on threads that are launched and joined each time: what a crew of threads that stay saves.
#include <pthread.h>
#include <stdint.h>

typedef void (*Rows)(void *context, int64_t begin, int64_t end);
typedef struct {
  Rows rows;
  void *context;
  int64_t begin, end;
} Part;

enum { MOST = 64 };

static void *work(void *given) {
  Part *part = given;
  part->rows(part->context, part->begin, part->end);
  return 0;
}

// 0, or the error of pthread_create; parts are multiples of `grain` rows
int launched(Rows rows, void *context, long count, long threads, long grain, long repeats) {
  pthread_t others[MOST];
  Part parts[MOST];
  long share = (count + threads * grain - 1) / (threads * grain) * grain;
  long used = (count + share - 1) / share;
  for (long k = 0; k < used; ++k) parts[k] = (Part){rows, context, k * share, k + 1 < used ? (k + 1) * share : count};
  for (long r = 0; r < repeats; ++r) {
    for (long k = 1; k < used; ++k) {
      int failed = pthread_create(&others[k], 0, work, &parts[k]);
      if (failed) {
        while (--k > 0) pthread_join(others[k], 0);
        return failed;
      }
    }
    work(&parts[0]);
    for (long k = 1; k < used; ++k) pthread_join(others[k], 0);
  }
  return 0;
}
