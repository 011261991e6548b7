// Settings of the CUDA emulator: a CUDA runtime, the device language and cuBLASLt on the host, so
// that kernels/cuda runs, tests and all, where there is no card. It proves what the kernels compute
// and how they synchronise, not how fast they are. Calls may come from several threads.
//
// Device memory is host memory with canaries, filled with NaN. Streams are queues whose operations
// run when a thread waits for them, and no earlier: what relies on an order that no event or stream
// gives reads wrong values. Several cards have memory and streams of their own, and one clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lodestar::emulator {

enum class ThreadOrder : uint8_t { kForward, kReversed };

// What a wait for one stream makes run on others: only what the stream waits for itself, or
// everything else first. Between the two, an unordered reader and writer meet in either order.
enum class StreamOrder : uint8_t { kOnlyWhatIsNeeded, kOthersFirst };

// What becomes of a matrix product with an epilogue: it is computed; the heuristic knows none but
// DEFAULT; the heuristic knows it, but the call is refused; it breaks the card.
enum class Epilogues : uint8_t { kWork, kUnknown, kRefused, kFatal };

struct Settings {
  ThreadOrder threads = ThreadOrder::kForward;
  StreamOrder streams = StreamOrder::kOnlyWhatIsNeeded;
  int num_devices = 1;
  bool peers_reach = true;      // cards may copy from and to each other's memory without the host
  int compute_capability = 90;  // ten times the major plus the minor version
  size_t memory_bytes = size_t{1} << 30;  // of each card
  // The most host memory that one call registers; more is refused.
  size_t registrable_bytes = size_t{1} << 30;
  Epilogues epilogues = Epilogues::kWork;
  // What a matrix product with one takes, of an algorithm that takes 1 without.
  double epilogue_microseconds = 1.0;
  // What a matrix product takes with each of the algorithms that the heuristic names, best guess
  // first. They differ in the order of their sums, and so in last bits.
  std::vector<double> algorithm_microseconds = {1.0};
  int refused_algorithm = -1;  // it is named, but neither taken by a call nor by a check
};

// The state of the card, with what is queued on it, is kept.
void Configure(const Settings& settings);
const Settings& settings();
// The next `count` allocations of device memory succeed, those after it fail.
void FailAllocationsAfter(int count);
// The kernel `count` launches from now fails as if it had touched foreign memory.
void FailLaunchAfter(int count);
// So long the host does something else: what is queued runs, and if that takes less by the card's
// clock, the card has nothing to do for the rest.
void PassTime(double microseconds);
// Forgets an error that sticks to the card, as a new process would.
void ClearStickyError();
// What was wrong with the kernel that failed first, with thread and place; empty: none failed.
std::string KernelFailure();
// How often cuBLASLt was asked for an algorithm.
int64_t num_heuristics();
// How many matrix products were queued or recorded.
int64_t num_products();
int64_t num_launches();
// Device and pinned host memory that was allocated, or registered, and not released.
int64_t num_allocations();
// Bytes of host memory that were allocated pinned, or registered, and not released.
int64_t pinned_bytes();
// Asynchronous copies between device memory and host memory that is not pinned: on a card they
// wait.
int64_t num_pageable_copies();
// Bytes of asynchronous copies to and from host memory that was registered.
int64_t registered_bytes_copied();

}  // namespace lodestar::emulator
