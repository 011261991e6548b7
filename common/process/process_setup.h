// SPDX-License-Identifier: Apache-2.0

// Sets up the system, the C library, Abseil and the processor for our programs. Each function is
// called once at the top of main(), before any thread. Only RaiseMallocThresholds() is different: a
// library in another program's process calls that function alone.
#pragma once

namespace lodestar::process {

// Opens /dev/null on each of the descriptors 0 to 2 that is closed (`2>&-`, or a supervisor closed
// it). If they stayed closed, the first files and sockets would get these numbers, and log lines
// would be written into these files. Exits with 1 if this fails. Called before main(), see
// program_start.cc.
void OpenStandardStreams();

// Sets up signals and the handling of memory shortage. Every program of ours calls this first. It
// ignores SIGPIPE and SIGXFSZ, so that writing to a closed pipe or socket returns EPIPE, and
// writing beyond the limit of file sizes (ulimit -f) returns EFBIG. It sets SIGCHLD and SIGALRM to
// their defaults: if a parent has ignored them, the end of a child or of a time limit would not be
// noticed.
//
// After this call a process that has no memory left writes a message and exits with 1. It does the
// same if a library aborts or reads address 0 because memory is short. Exiting by a signal would
// suggest that another try may succeed. A signal for any other reason ends the process as it does
// without this call. See also program_start.cc.
void SetUpProgram();

// Keeps freed receive buffers in the process, so that they are not given back to the kernel.
// Otherwise every re-use faults the pages in again, which costs about half the throughput of a
// stream. All threads share one arena: if there were several arenas, each would keep buffers that
// other threads could use.
void SetUpMalloc();

// Keeps freed receive buffers like SetUpMalloc(), for a library inside another program, whose
// malloc settings must stay. glibc sets its thresholds to the size of the largest block below 32
// MiB that was ever freed. This call allocates and frees such a block. It has no effect if the
// environment sets thresholds (MALLOC_MMAP_THRESHOLD_ ...). Any thread may call it.
void RaiseMallocThresholds();

// Turns off Abseil's search for wrong lock orders. Debian's Abseil is built with this search. With
// the search, every lock and unlock, also in gRPC, takes one global lock and updates one global
// graph. Tests keep the search on.
void SetUpMutexes();

// Raises the number of files that this process may have open, as far as the system allows. Each
// connection is a file, and most shells start programs with a limit of 1024.
void RaiseFileLimit();

// Treats numbers below 2^-126 as zero, as GPUs can. Such numbers do not matter for training, but
// x86 takes a hundred cycles for each: gradients and moments close to zero made matrix products 10
// times slower. Threads that are started later inherit the setting.
void FlushDenormals();

}  // namespace lodestar::process
