// Settings of the C library's allocator for processes that move tensors over gRPC.
#pragma once

namespace lodestar {

// Keeps freed receive buffers in the process instead of giving them back to the kernel: otherwise
// every re-use faults its pages in again, which costs about half the throughput of a stream. One
// arena for all threads: with more, each keeps receive buffers that another one could use.
// A process that has no memory left for an object says so and exits with 1.
// Called once at the top of main(), before any thread.
void SetUpMalloc();

}  // namespace lodestar
