/* Runs a kernel of tools/cross.py: reads sizes and inputs from its standard input, and writes the
 * results to its standard output. The words behind the arrays are functions of the C library and of
 * Python that kernels call by address. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

extern void rows(void *context, int64_t start, int64_t stop);

static void *get(size_t bytes) { return malloc(bytes ? bytes : 1); }

static void fail(const char *text) {
  fprintf(stderr, "%s\n", text);
  exit(3);
}

static void take(void *data, size_t bytes) {
  if (fread(data, 1, bytes, stdin) != bytes) fail("the input is too short");
}

int main(void) {
  int64_t head[4], *sizes, *context;
  take(head, sizeof head);
  const int64_t inputs = head[0], arrays = head[0] + head[1], count = head[2], single = head[3];
  const size_t each = single ? sizeof(float) : sizeof(double);
  sizes = get((size_t)arrays * sizeof *sizes);
  context = get((size_t)(2 * arrays + 6) * sizeof *context);
  if (sizes == NULL || context == NULL) fail("no memory");
  take(sizes, (size_t)arrays * sizeof *sizes);
  for (int64_t k = 0; k < arrays; ++k) {
    /* structural zeros must come from the kernel, too */
    const size_t bytes = (size_t)(sizes[k] * count) * each;
    unsigned char *data = get(bytes);
    if (data == NULL) fail("no memory");
    for (size_t i = 0; i < bytes; ++i) data[i] = 0xAB;
    if (k < inputs) take(data, bytes);
    context[2 * k] = (int64_t)(intptr_t)data;
    context[2 * k + 1] = sizes[k];
  }
  int64_t *linked = context + 2 * arrays;
  linked[0] = single ? (int64_t)(intptr_t)sinf : (int64_t)(intptr_t)sin;
  linked[1] = single ? (int64_t)(intptr_t)cosf : (int64_t)(intptr_t)cos;
  linked[2] = single ? (int64_t)(intptr_t)atan2f : (int64_t)(intptr_t)atan2;
  linked[3] = (int64_t)(intptr_t)malloc;
  linked[4] = (int64_t)(intptr_t)free;
  linked[5] = (int64_t)(intptr_t)fail;
  rows(context, 0, count);
  for (int64_t k = inputs; k < arrays; ++k) {
    const size_t bytes = (size_t)(sizes[k] * count) * each;
    if (fwrite((void *)(intptr_t)context[2 * k], 1, bytes, stdout) != bytes) fail("cannot write");
  }
  return 0;
}
