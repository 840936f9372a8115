// SPDX-License-Identifier: Apache-2.0
// What a kernel that was compiled for the simulated CUDA device and the simulator say to each other. Included
// by both, so it includes nothing and uses plain types only. An object of such kernels exports
//   extern "C" const KnSimHooks* kn_sim;                    set by the simulator before the first launch
//   extern "C" void NAME(const void* parameters);           one call per thread, on a fiber of its own
#pragma once

/// The running thread. The simulator changes it whenever it switches threads.
struct KnSimThread {
  int thread;   ///< within the block: [0, threads)
  int threads;  ///< of the block
  long block;   ///< [0, blocks)
  long blocks;
};

/// How an address is used.
enum KnSimAccess : int { kn_sim_read = 0, kn_sim_write = 1 };

/// Calls into the simulator. Device addresses are no host addresses: every access goes through `global` or
/// `shared`, which check it and say where the bytes lie. A fault ends the launch: such a call then does not
/// return.
struct KnSimHooks {
  const KnSimThread* self;
  /// `bytes` bytes of global memory, a power of two up to 16 that the address is a multiple of.
  void* (*global)(const void* address, unsigned bytes, int access);
  /// The same of the block's dynamic shared memory, by offset.
  void* (*shared)(unsigned offset, unsigned bytes, int access);
  /// All threads of the block meet.
  void (*barrier)(void);
  /// All 32 threads of the warp meet.
  void (*warp_barrier)(void);
  /// All 32 threads of the warp meet, each with `bytes` (at most 32) at `mine`. Gives 32 rows of 32 bytes, by
  /// lane, valid until this thread's next exchange. `word` names what is done: lanes that meet in different
  /// words are a fault.
  const void* (*exchange)(const char* word, const void* mine, unsigned bytes);
  /// cp.async: copies `bytes` (4, 8 or 16) from global to shared memory at some moment before it is waited
  /// for; zeros if not `valid`, without looking at `from`.
  void (*copy_async)(unsigned to, const void* from, unsigned bytes, int valid);
  /// cp.async.commit_group and cp.async.wait_group: all but the last `pending` groups have arrived.
  void (*copy_commit)(void);
  void (*copy_wait)(int pending);
  /// The kernel itself found something wrong.
  void (*fault)(const char* what);
};
