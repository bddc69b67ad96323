/* The C side of bench/link.py and tests/test_link.py. A message's value i is 65536 * number + i, so
 * that one which mixes two messages is known. Usage: link MODE NAME COUNT [WIDTH [SLOTS]]
 *   stream   robot: COUNT states, none lost; a control to each is expected, in order
 *   answer   controller to it
 *   ping     robot: one exchange after the other; how long each takes
 *   serve    controller to it, and to robots that send one state at a time
 *   flood    robot: states as fast as can be, over those that nobody has read, until it is alone
 *   watch    controller to it: COUNT times the newest state, or the next one that is left
 * Prints one line of JSON. */
#include "rigidgrad_link.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t torn, out_of_order;
static double values[65536], reply[65536];

static void fill(uint64_t number, uint64_t width) {
  for (uint64_t i = 0; i < width; ++i) values[i] = (double)(65536 * number + i);
}

static void check(const rg_message *message, uint64_t width) {
  for (uint64_t i = 0; i < width; ++i)
    if (reply[i] != (double)(65536 * message->number + i)) {
      ++torn;
      return;
    }
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* COUNT exchanges without loss: up to half a ring of states is under way. */
static uint64_t stream(rg_link *link, uint64_t count, int sends_first) {
  const uint64_t window = link->out.slots / 2;
  uint64_t sent = 0, got = 0;
  while (got < count || sent < count) {
    rg_message message;
    int idle = 1;
    const uint64_t may = sends_first ? got + window : got;
    if (sent < count && sent < may) {
      fill(sent + 1, link->out.width);
      if (rg_link_offer(link, 1e-3 * (double)sent, values)) {
        ++sent;
        idle = 0;
      }
    }
    if (got < count && rg_link_next(link, &message, reply) == 1) {
      ++got;
      if (message.number != got || message.skipped != 0) ++out_of_order;
      check(&message, link->in.width);
      idle = 0;
    }
    if (idle) (void)rg_link_wait(link, 10000000, 20000);
  }
  return got;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const char *mode = argv[1];
  const uint64_t count = strtoull(argv[3], NULL, 10);
  const uint64_t width = argc > 4 ? strtoull(argv[4], NULL, 10) : 14;
  const uint64_t slots = argc > 5 ? strtoull(argv[5], NULL, 10) : 64;
  const int robot = !strcmp(mode, "stream") || !strcmp(mode, "ping") || !strcmp(mode, "flood");
  rg_link link;
  const int trouble = rg_link_open(&link, argv[2], robot ? RG_LINK_ROBOT : RG_LINK_CONTROLLER,
                                   width, width, slots);
  if (trouble) {
    fprintf(stderr, "%s\n", rg_link_error(trouble));
    return 1;
  }
  while (!rg_link_connected(&link)) sched_yield();
  const int64_t begin = rg_link_clock();
  uint64_t done = 0, skipped = 0, missed = 0;
  double median = 0, high = 0, worst = 0;
  rg_message message;
  if (!strcmp(mode, "stream") || !strcmp(mode, "answer")) {
    done = stream(&link, count, robot);
  } else if (!strcmp(mode, "ping")) {
    double *took = (double *)malloc(count * sizeof *took);
    if (took == NULL) return 1;
    while (done + missed < count) {
      const int64_t start = rg_link_clock();
      fill(done + missed + 1, width);
      if (rg_link_exchange(&link, 0.0, values, &message, reply, 1000000000) == 1) {
        took[done++] = 1e-3 * (double)(rg_link_clock() - start);
        check(&message, width);
      } else {
        ++missed;
      }
    }
    qsort(took, done, sizeof *took, compare);
    if (done) {
      median = took[done / 2];
      high = took[done * 99 / 100];
      worst = took[done - 1];
    }
    free(took);
  } else if (!strcmp(mode, "serve")) {
    while (rg_link_connected(&link)) {
      if (!rg_link_wait(&link, 10000000, 10000000)) continue;
      if (rg_link_newest(&link, &message, reply) != 1) continue;
      check(&message, width);
      skipped += message.skipped;
      fill(++done, width);
      rg_link_send(&link, message.time, values);
    }
  } else if (!strcmp(mode, "flood")) {
    while (done % 1024 || rg_link_connected(&link)) {
      fill(++done, width);
      rg_link_send(&link, 0.0, values);
    }
  } else { /* watch */
    while (done < count) {
      const int got = done % 2 ? rg_link_next(&link, &message, reply)
                               : rg_link_newest(&link, &message, reply);
      if (got < 0) ++missed;
      if (got != 1) continue;
      ++done;
      skipped += message.skipped;
      check(&message, width);
    }
  }
  const double seconds = 1e-9 * (double)(rg_link_clock() - begin);
  printf("{\"mode\": \"%s\", \"done\": %llu, \"skipped\": %llu, \"missed\": %llu, \"torn\": %llu, "
         "\"out_of_order\": %llu, \"seconds\": %.6f, \"median_us\": %.3f, \"p99_us\": %.3f, "
         "\"worst_us\": %.3f}\n",
         mode, (unsigned long long)done, (unsigned long long)skipped, (unsigned long long)missed,
         (unsigned long long)torn, (unsigned long long)out_of_order, seconds, median, high, worst);
  rg_link_close(&link);
  return 0;
}
