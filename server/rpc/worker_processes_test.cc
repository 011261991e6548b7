// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/worker_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace lodestar::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A process that lives until it is killed.
class Child {
 public:
  Child() : id_(fork()) {
    while (id_ == 0) pause();
  }
  ~Child() { Kill(); }
  int64_t id() const { return id_; }
  void Stop() {
    kill(id_, SIGSTOP);
    waitpid(id_, nullptr, WUNTRACED);
  }
  void Kill() {
    if (is_killed_) return;
    is_killed_ = true;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }

 private:
  const pid_t id_;
  bool is_killed_ = false;
};

constexpr messages::WorkerLife LifeOf(uint32_t worker, uint64_t incarnation) {
  return {WorkerId(worker), Incarnation(incarnation)};
}

class WorkerProcessesTest : public testing::Test {
 protected:
  void Watch(const messages::WorkerLife& life, const Child& child) {
    FileDescriptor process = WorkerProcesses::Find(child.id());
    if (!process.is_open()) GTEST_SKIP() << "this kernel has no pidfd";
    processes_.Watch(life, std::move(process));
  }

  WorkerProcesses processes_;
};

TEST_F(WorkerProcessesTest, TellsOnceWhoseProcessHasEnded) {
  Child a;
  Child b;
  Watch(LifeOf(1, 7), a);
  Watch(LifeOf(2, 8), b);
  EXPECT_THAT(processes_.TakeEnded(), IsEmpty());
  a.Stop();
  EXPECT_THAT(processes_.TakeEnded(), IsEmpty()) << "a stopped process may go on";
  a.Kill();
  EXPECT_THAT(processes_.TakeEnded(), ElementsAre(LifeOf(1, 7)));
  EXPECT_THAT(processes_.TakeEnded(), IsEmpty());
  b.Kill();
  EXPECT_THAT(processes_.TakeEnded(), ElementsAre(LifeOf(2, 8)));
}

TEST_F(WorkerProcessesTest, WatchesTheNewestLifeOfAWorker) {
  Child before;
  Child now;
  Watch(LifeOf(1, 7), before);
  Watch(LifeOf(1, 9), now);
  Watch(LifeOf(1, 7), before);  // a late call of an older incarnation
  before.Kill();
  EXPECT_THAT(processes_.TakeEnded(), IsEmpty());
  now.Kill();
  EXPECT_THAT(processes_.TakeEnded(), ElementsAre(LifeOf(1, 9)));
}

TEST(WorkerProcessesLimitTest, LeavesFilesToConnections) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 32;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  WorkerProcesses processes;
  setrlimit(RLIMIT_NOFILE, &before);
  Child child;
  for (uint32_t worker = 1; worker <= 3; ++worker) {
    FileDescriptor process = WorkerProcesses::Find(child.id());
    if (!process.is_open()) GTEST_SKIP() << "this kernel has no pidfd";
    processes.Watch(LifeOf(worker, 7), std::move(process));
  }
  child.Kill();
  EXPECT_THAT(processes.TakeEnded(), ElementsAre(LifeOf(1, 7), LifeOf(2, 7)));
}

TEST_F(WorkerProcessesTest, FindsNothingForNumbersThatAreNoProcess) {
  for (const int64_t id : {int64_t{-1}, int64_t{0}, int64_t{1} << 40}) {
    EXPECT_FALSE(WorkerProcesses::Find(id).is_open()) << id;
  }
  processes_.Watch(LifeOf(1, 7), FileDescriptor());
  EXPECT_THAT(processes_.TakeEnded(), IsEmpty());
}

}  // namespace
}  // namespace lodestar::rpc
