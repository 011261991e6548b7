// SPDX-License-Identifier: Apache-2.0

// Functions that set up the system, the C library, Abseil and the processor for our programs. Each
// function is called once, before any thread starts. Only RaiseMallocThresholds() is different: it
// is for a library in another program's process.
#pragma once

namespace lodestar::process {

// Opens /dev/null on each of the descriptors 0 to 2 that is closed. If such a descriptor stayed
// closed, the next file or socket would get its number, and log lines would be written into it. If
// this fails, exits with 1. Runs before main(), see program_start.cc.
void OpenStandardStreams();

// Sets up signals and the handling of memory shortage. Every program of ours calls this first.
// - SIGPIPE is ignored: writing to a closed pipe or socket returns EPIPE.
// - SIGXFSZ is ignored: writing beyond the limit of file sizes (ulimit -f) returns EFBIG.
// - SIGCHLD and SIGALRM get their defaults. If a parent has ignored them, the process would not
//   notice the end of a child or of a time limit.
// - If the process has no memory left, it writes a message and exits with 1. It does the same if a
//   library then aborts or reads address 0. An exit by a signal would suggest that another try may
//   succeed.
//
// See also program_start.cc.
void SetUpProgram();

// Keeps freed memory in the process, so that receive buffers are not given back to the kernel.
// Otherwise each new buffer causes page faults, which halve the throughput of a stream. All threads
// share one arena, because threads cannot use free buffers of other arenas.
void SetUpMalloc();

// Keeps freed receive buffers in the process, as SetUpMalloc() does. For a library inside another
// program, whose malloc settings must stay. If a block below 32 MiB is freed, glibc raises its
// thresholds to the size of that block. So this call allocates and frees such a block. It has no
// effect if the environment sets thresholds (MALLOC_MMAP_THRESHOLD_ ...). Any thread may call it.
void RaiseMallocThresholds();

// Turns off Abseil's search for wrong lock orders, with which Debian's Abseil is built. The search
// makes every lock and unlock, also in gRPC, update one global graph under one global lock. Tests
// keep the search on.
void SetUpMutexes();

// Raises the number of files that this process may have open, as far as the system allows. Each
// connection is a file, and most shells start programs with a limit of 1024.
void RaiseFileLimit();

// Treats numbers below 2^-126 as zero, as GPUs can. Such numbers do not matter for training, but
// x86 takes a hundred cycles for each: gradients and moments close to zero made matrix products 10
// times slower. Threads that are started later inherit the setting.
void FlushDenormals();

}  // namespace lodestar::process
