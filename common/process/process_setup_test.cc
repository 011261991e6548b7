// SPDX-License-Identifier: Apache-2.0

#include "common/process/process_setup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace lodestar::process {
namespace {

void LockInBothOrders() {
  absl::Mutex a, b;
  {
    absl::MutexLock first(&a);
    absl::MutexLock second(&b);
  }
  absl::MutexLock first(&b);
  absl::MutexLock second(&a);
}

bool IsNullDevice(int descriptor) {
  struct stat found = {};
  struct stat wanted = {};
  return fstat(descriptor, &found) == 0 && stat("/dev/null", &wanted) == 0 &&
         found.st_rdev == wanted.st_rdev;
}

TEST(ProcessSetupDeathTest, ClosedStandardStreamsLeadToTheNullDevice) {
  EXPECT_EXIT(
      {
        for (int descriptor = 0; descriptor < 3; ++descriptor) close(descriptor);
        OpenStandardStreams();
        bool are_all = true;
        for (int descriptor = 0; descriptor < 3; ++descriptor) {
          are_all = are_all && IsNullDevice(descriptor);
        }
        const int file = open("/", O_RDONLY | O_CLOEXEC);
        std::_Exit(are_all && file > STDERR_FILENO ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(ProcessSetupDeathTest, OpenStandardStreamsStayAsTheyAre) {
  EXPECT_EXIT(
      {
        int ends[2];
        if (pipe(ends) != 0 || dup2(ends[0], STDIN_FILENO) != STDIN_FILENO) std::_Exit(1);
        close(STDOUT_FILENO);
        OpenStandardStreams();
        std::_Exit(!IsNullDevice(STDIN_FILENO) && IsNullDevice(STDOUT_FILENO) &&
                           write(STDERR_FILENO, "seen", 4) == 4
                       ? 0
                       : 1);
      },
      ::testing::ExitedWithCode(0), "^seen$");
}

TEST(ProcessSetupDeathTest, ChildThatEndsIsSeenIfTheParentIgnoredSigchld) {
  EXPECT_EXIT(
      {
        std::signal(SIGCHLD, SIG_IGN);
        SetUpProgram();
        const pid_t child = fork();
        if (child == 0) _exit(7);
        int status = 0;
        std::_Exit(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(ProcessSetupDeathTest, TimeLimitEndsTheProcessIfTheParentIgnoredSigalrm) {
  EXPECT_EXIT(
      {
        std::signal(SIGALRM, SIG_IGN);
        SetUpProgram();
        raise(SIGALRM);
        std::_Exit(0);
      },
      ::testing::KilledBySignal(SIGALRM), "^$");
}

TEST(ProcessSetupDeathTest, WritingToAReaderThatIsGoneIsAnError) {
  EXPECT_EXIT(
      {
        std::signal(SIGPIPE, SIG_DFL);
        SetUpProgram();
        int ends[2];
        if (pipe(ends) != 0) std::_Exit(1);
        close(ends[0]);
        std::_Exit(write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(ProcessSetupDeathTest, WritingBeyondTheLimitOfFileSizesIsAnError) {
  EXPECT_EXIT(
      {
        std::signal(SIGXFSZ, SIG_DFL);
        SetUpProgram();
        rlimit limit = {};
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = 0;
        setrlimit(RLIMIT_FSIZE, &limit);
        std::FILE* const file = std::tmpfile();
        std::_Exit(write(fileno(file), "x", 1) == -1 && errno == EFBIG ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(ProcessSetupDeathTest, LocksAreNotWatched) {
  // The search for wrong lock orders would abort here, unless Abseil is built without it.
  EXPECT_EXIT(
      {
        SetUpMutexes();
        LockInBothOrders();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

#ifndef LODESTAR_SANITIZER  // sanitizers need more memory than the limit below allows
void TakeAllMemory() {
  rlimit limit = {};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = 1;  // the process may not use more memory than it uses now
  setrlimit(RLIMIT_AS, &limit);
}

TEST(ProcessSetupDeathTest, LibraryThatAbortsOrReadsNothingForWantOfMemoryIsSaid) {
  for (const int signal : {SIGABRT, SIGSEGV}) {
    EXPECT_EXIT(
        {
          SetUpProgram();
          TakeAllMemory();
          raise(signal);
        },
        ::testing::ExitedWithCode(1), "^out of memory");
  }
}

TEST(ProcessSetupDeathTest, SignalsOfFaultsEndTheProcessWhereThereIsMemory) {
  for (const int signal : {SIGABRT, SIGSEGV}) {
    EXPECT_EXIT(
        {
          SetUpProgram();
          kill(getpid(), signal);  // the watchdog of systemd sends the signal in the same way
        },
        ::testing::KilledBySignal(signal), "^$");
  }
}

TEST(ProcessSetupDeathTest, FaultsAndAbortsEndTheProcessWhereThereIsMemory) {
  EXPECT_EXIT(
      {
        SetUpProgram();
        volatile int* volatile nowhere = nullptr;
        *nowhere = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
  EXPECT_EXIT(
      {
        SetUpProgram();
        std::abort();
      },
      ::testing::KilledBySignal(SIGABRT), "^$");
}
#endif

#if defined(__GLIBC__) && !defined(LODESTAR_SANITIZER)
TEST(ProcessSetupTest, LargeBlocksAreKeptOnceTheThresholdsAreRaised) {
  RaiseMallocThresholds();
  const size_t before = mallinfo2().hblks;  // blocks that free() gives back to the kernel
  void* volatile block = std::malloc(size_t{16} << 20);
  EXPECT_EQ(mallinfo2().hblks, before);
  std::free(block);
}
#endif

TEST(ProcessSetupTest, MayHaveAsManyFilesAsItCan) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  RaiseFileLimit();
  rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(after.rlim_cur, std::min<rlim_t>(before.rlim_max, 1 << 20));
}

// `factor` is volatile, so that the processor and not the compiler computes the product.
float Product(float x, float y) {
  volatile float factor = x;
  return factor * y;
}

#ifdef __SSE2__
TEST(ProcessSetupTest, DenormalsAreZeroInThisThreadAndThoseStartedLater) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  ASSERT_GT(Product(kSmallest, 0.5f), 0.0f);
  FlushDenormals();
  EXPECT_EQ(Product(kSmallest, 0.5f), 0.0f);
  std::thread([] {
    EXPECT_EQ(Product(kSmallest, 0.5f), 0.0f);
    EXPECT_EQ(Product(kDenormal, 1e30f), 0.0f);
  }).join();
  EXPECT_EQ(Product(4 * kSmallest, 0.5f), 2 * kSmallest);
}
#endif

}  // namespace
}  // namespace lodestar::process
