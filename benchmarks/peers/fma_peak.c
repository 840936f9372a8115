// SPDX-License-Identifier: Apache-2.0
// The machine's FMA peak: 12 independent chains of 256-bit and, where the CPU has it, 512-bit FMAs.
//   cc -O2 -pthread fma_peak.c -o fma_peak && ./fma_peak THREADS     prints one JSON line
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEPS 40000000L
#define CHAINS 12
#define MAX_THREADS 256
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static pthread_barrier_t barrier;
static volatile float sink[MAX_THREADS];
static double begin[MAX_THREADS], end[MAX_THREADS];

// Volatile assembly, so that no compiler folds the chains or moves them over the clock.
#define FMA(i) __asm__ volatile("vfmadd213ps %2,%1,%0" : "+v"(a##i) : "v"(m), "v"(c));

__attribute__((target("avx2,fma"))) static void* work256(void* p) {
  const long id = (long)p;
#define SET(i) __m256 a##i = _mm256_set1_ps(1e-3f * i);
  ALL(SET)
#undef SET
  const __m256 m = _mm256_set1_ps(0.999999f), c = _mm256_set1_ps(1e-6f);
  pthread_barrier_wait(&barrier);
  begin[id] = now();
  for (long n = 0; n < STEPS; n++) { ALL(FMA) }
  end[id] = now();
#define SUM(i) +_mm256_cvtss_f32(a##i)
  sink[id] = 0 ALL(SUM);
#undef SUM
  return 0;
}

__attribute__((target("avx512f"))) static void* work512(void* p) {
  const long id = (long)p;
#define SET(i) __m512 a##i = _mm512_set1_ps(1e-3f * i);
  ALL(SET)
#undef SET
  const __m512 m = _mm512_set1_ps(0.999999f), c = _mm512_set1_ps(1e-6f);
  pthread_barrier_wait(&barrier);
  begin[id] = now();
  for (long n = 0; n < STEPS; n++) { ALL(FMA) }
  end[id] = now();
#define SUM(i) +_mm512_cvtss_f32(a##i)
  sink[id] = 0 ALL(SUM);
#undef SUM
  return 0;
}

static double gflops(void* (*work)(void*), int threads, int lanes) {
  double best = 0;
  for (int rep = 0; rep < 7; rep++) {
    pthread_t t[MAX_THREADS];
    pthread_barrier_init(&barrier, 0, threads);
    for (long i = 0; i < threads; i++) pthread_create(&t[i], 0, work, (void*)i);
    for (int i = 0; i < threads; i++) pthread_join(t[i], 0);
    double first = begin[0], last = end[0];
    for (int i = 1; i < threads; i++) {
      if (begin[i] < first) first = begin[i];
      if (end[i] > last) last = end[i];
    }
    const double g = (double)STEPS * CHAINS * 2 * lanes * threads / (last - first) / 1e9;
    if (g > best) best = g;
  }
  return best;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > MAX_THREADS || !__builtin_cpu_supports("fma")) {
    fprintf(stderr, "usage: fma_peak THREADS (1 to %d), on a CPU with FMA\n", MAX_THREADS);
    return 1;
  }
  const double g256 = gflops(work256, threads, 8);
  const double g512 = __builtin_cpu_supports("avx512f") ? gflops(work512, threads, 16) : 0;
  printf("{\"probe\": \"fma_peak\", \"threads\": %d, \"gflops\": %.1f, \"gflops_256\": %.1f, "
         "\"gflops_512\": %.1f}\n",
         threads, g256 > g512 ? g256 : g512, g256, g512);
  return 0;
}
