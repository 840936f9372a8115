// SPDX-License-Identifier: Apache-2.0
// The machine's copy bandwidth: memcpy of 512 MB by all threads, bytes read plus bytes written.
//   cc -O2 -pthread copy_peak.c -o copy_peak && ./copy_peak THREADS     prints one JSON line
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES (512L << 20)
#define MAX_THREADS 256

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static char *from, *to;
static long threads;
static pthread_barrier_t barrier;
static double begin[MAX_THREADS], end[MAX_THREADS];

static void* work(void* p) {
  const long id = (long)p, at = BYTES / threads * id, n = BYTES / threads;
  pthread_barrier_wait(&barrier);
  begin[id] = now();
  memcpy(to + at, from + at, n);
  end[id] = now();
  return 0;
}

int main(int argc, char** argv) {
  threads = argc > 1 ? atol(argv[1]) : 1;
  from = malloc(BYTES);
  to = malloc(BYTES);
  if (threads < 1 || threads > MAX_THREADS || !from || !to) {
    fprintf(stderr, "usage: copy_peak THREADS (1 to %d), with 1 GB of memory\n", MAX_THREADS);
    return 1;
  }
  memset(from, 1, BYTES);
  memset(to, 2, BYTES);
  double best = 0;
  for (int rep = 0; rep < 9; rep++) {
    pthread_t t[MAX_THREADS];
    pthread_barrier_init(&barrier, 0, threads);
    for (long i = 0; i < threads; i++) pthread_create(&t[i], 0, work, (void*)i);
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    double first = begin[0], last = end[0];
    for (int i = 1; i < threads; i++) {
      if (begin[i] < first) first = begin[i];
      if (end[i] > last) last = end[i];
    }
    const double gbs = 2.0 * (BYTES / threads * threads) / (last - first) / 1e9;
    if (gbs > best) best = gbs;
  }
  if (to[BYTES / 2] != 1) return 1;
  printf("{\"probe\": \"copy_peak\", \"threads\": %ld, \"gbs\": %.2f}\n", threads, best);
  return 0;
}
