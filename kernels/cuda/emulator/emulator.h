// SPDX-License-Identifier: Apache-2.0

// Settings of the CUDA emulator: a CUDA runtime, the device language and cuBLASLt on the host. With
// the emulator, kernels/cuda and its tests run without a card. Such tests prove what the kernels
// compute and how they synchronise, but not their speed. Calls may come from several threads.
//
// - Device memory is host memory filled with NaN, with canaries behind it.
// - Streams are queues whose operations run only when a thread waits for them. If an operation
//   needs values of another operation, but no event or stream orders the two, it may read wrong
//   values.
// - Each card has its own memory and streams. All cards share one clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lodestar::emulator {

enum class ThreadOrder : uint8_t { kForward, kReversed };

// Says which operations of other streams run when a thread waits for one stream. If no event orders
// a reader and a writer, the two settings run them in different orders.
// - kOnlyWhatIsNeeded: only operations that the stream waits for run.
// - kOthersFirst: all operations of other streams run first.
enum class StreamOrder : uint8_t { kOnlyWhatIsNeeded, kOthersFirst };

// Says what happens to a matrix product with an epilogue:
// - kWork: the product is computed.
// - kUnknown: the heuristic knows no epilogue except DEFAULT.
// - kRefused: the heuristic knows the epilogue, but the call is refused.
// - kFatal: the call breaks the card.
enum class Epilogues : uint8_t { kWork, kUnknown, kRefused, kFatal };

struct Settings {
  ThreadOrder threads = ThreadOrder::kForward;
  StreamOrder streams = StreamOrder::kOnlyWhatIsNeeded;
  int num_devices = 1;
  bool peers_reach = true;                // cards may copy from and to each other's memory directly
  int compute_capability = 90;            // 10 * major version + minor version
  size_t memory_bytes = size_t{1} << 30;  // of each card
  // Maximum host memory that one call can register.
  size_t registrable_bytes = size_t{1} << 30;
  Epilogues epilogues = Epilogues::kWork;
  // If an algorithm takes t us without an epilogue, it takes t * epilogue_microseconds us with one.
  double epilogue_microseconds = 1.0;
  // Time of a matrix product with each algorithm of the heuristic, in the order of the heuristic.
  // The algorithms add in different orders, so their results differ in the last bits.
  std::vector<double> algorithm_microseconds = {1.0};
  // Number of an algorithm that the heuristic names, but that is refused when it is checked or
  // called. -1 means that no algorithm is refused.
  int refused_algorithm = -1;
};

// Changes the settings. The card's memory, streams and queued operations do not change.
void Configure(const Settings& settings);
const Settings& settings();
// Lets the next `count` allocations of device memory succeed. Later allocations fail.
void FailAllocationsAfter(int count);
// Makes a kernel fail as if it had accessed memory outside its allocations. 0 means the next
// kernel, 1 the kernel after it.
void FailLaunchAfter(int count);
// Advances the host's clock while queued operations run on the card. If they end earlier, the card
// is idle for the rest of the time.
void PassTime(double microseconds);
// Clears an error that all calls would otherwise return until the process ends. Also clears
// KernelFailure(), and cancels FailAllocationsAfter() and FailLaunchAfter().
void ClearStickyError();
// Returns the error of the first kernel that failed, with thread and place. Empty means that no
// kernel has failed.
std::string KernelFailure();
// Returns the number of calls that asked cuBLASLt for an algorithm.
int64_t num_heuristics();
// Returns the number of matrix products that were queued or recorded.
int64_t num_products();
int64_t num_launches();
// Returns the number of allocations of device memory and pinned host memory, and of registrations
// of host memory, that are not released.
int64_t num_allocations();
// Returns the bytes of host memory that is pinned or registered now.
int64_t pinned_bytes();
// Returns the number of asynchronous copies between device memory and host memory that is not
// pinned. On a real card, the host waits in such a copy.
int64_t num_pageable_copies();
// Returns the bytes that asynchronous copies have moved to and from registered host memory.
int64_t registered_bytes_copied();

}  // namespace lodestar::emulator
