// Settings of the system, of the C library, of Abseil and of the processor for our programs. Each
// is called once at the top of main(), before any thread, but for RaiseMallocThresholds(). A
// library in the process of another program calls that function alone.
#pragma once

namespace lodestar {

// Opens /dev/null on each of the descriptors 0 to 2 that is closed (`2>&-`, some supervisors):
// otherwise the first files and sockets get these numbers, and log lines are written into them.
// Exits with 1 if it cannot. Called before main(), see program_start.cc.
void OpenStandardStreams();

// Every program of ours begins with this. It ignores SIGPIPE and SIGXFSZ, so that writing to a
// closed pipe or socket returns EPIPE, and writing beyond the limit of file sizes (ulimit -f)
// EFBIG. It sets SIGCHLD and SIGALRM to their defaults: a parent may have ignored them, and then
// the end of a child and the end of a time limit would not be noticed.
//
// A process that has no memory left says so and exits with 1 from then on. So it does where a
// library aborts or reads address 0 for lack of memory: another try would end alike, and codes of
// signals say that it might not. A signal that has another reason ends the process as it does
// without this call. See also program_start.cc.
void SetUpProgram();

// Keeps freed receive buffers in the process instead of giving them back to the kernel: otherwise
// every re-use faults its pages in again, which costs about half the throughput of a stream. One
// arena for all threads: with more, each keeps receive buffers that another one could use.
void SetUpMalloc();

// Does nearly the same for receive buffers in a library, in a process whose malloc is not its own.
// glibc puts its thresholds at the size of the largest block below 32 MiB that was ever freed. A
// block that the program allocates like this has the same effect. The call has no effect if the
// environment sets thresholds (MALLOC_MMAP_THRESHOLD_ ...). Any thread may call it.
void RaiseMallocThresholds();

// Turns off the search for wrong lock orders. Debian's Abseil is built with it: every lock and
// unlock, also those of gRPC, then goes through one lock and one graph of the whole process. Tests
// keep it.
void SetUpMutexes();

// Raises the number of files that this process may have open, of which each connection is one, to
// the most that it may ask for: usual shells start it with 1024.
void RaiseFileLimit();

// Treats numbers below 2^-126 as zero, as GPUs can. They carry nothing that training needs, but x86
// takes a hundred cycles for each: gradients and moments that die away made matrix products 10
// times slower. Threads inherit it.
void FlushDenormals();

}  // namespace lodestar
