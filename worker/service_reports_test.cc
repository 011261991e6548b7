// SPDX-License-Identifier: Apache-2.0

#include "worker/service_reports.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>

#include "common/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace lodestar::worker {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(3);

// Fixture with a socket like the one on which systemd receives reports.
class ServiceReportsTest : public testing::Test {
 protected:
  // The kernel chooses the socket's name. The process id cannot be used, because two test processes
  // may have the same one.
  ServiceReportsTest() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_EQ(bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)),
              0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    name_.assign(address.sun_path, size - offsetof(sockaddr_un, sun_path));
    name_[0] = '@';
  }
  ~ServiceReportsTest() override { close(descriptor_); }

  // Waits for a report and returns it.
  std::string Receive(int flags = 0) const {
    char message[256];
    const ssize_t size = recv(descriptor_, message, sizeof(message), flags);
    return size < 0 ? "nothing" : std::string(message, static_cast<size_t>(size));
  }
  // Advances the clock by kInterval and returns the next report. Fails if the report was sent
  // earlier.
  std::string Next() {
    clock_.AwaitSleepers(1);
    EXPECT_EQ(Receive(MSG_DONTWAIT), "nothing");
    clock_.AdvanceTime(ServiceReports::kInterval);
    return Receive();
  }

  std::string name_;
  const int descriptor_ = socket(AF_UNIX, SOCK_DGRAM, 0);
  SimulatedClock clock_;
};

TEST_F(ServiceReportsTest, AWorkerIsReadyWhateverItWaitsFor) {
  ServiceReports::State state = {.standing = "not connected: nobody answers"};
  ServiceReports reports(process::ServiceManager(name_), "enrols", kPatience, &clock_);
  EXPECT_EQ(Receive(), "READY=1\nWATCHDOG=1\nSTATUS=enrols");
  // The reporting thread reads `state` only while this thread waits for a report.
  reports.Watch([&state] { return state; });
  EXPECT_EQ(Next(), "READY=1\nWATCHDOG=1\nSTATUS=not connected: nobody answers");
  state = {.standing = ""};
  EXPECT_EQ(Next(), "READY=1\nWATCHDOG=1\nSTATUS=computes");
}

TEST_F(ServiceReportsTest, AWorkerThatStopsIsAliveUntilItHasHandedIn) {
  ServiceReports reports(process::ServiceManager(name_), "enrols", kPatience, &clock_);
  EXPECT_EQ(Receive(), "READY=1\nWATCHDOG=1\nSTATUS=enrols");
  reports.Watch([] { return ServiceReports::State{.is_stopping = true, .standing = "leaves"}; });
  EXPECT_EQ(Next(), "STOPPING=1\nWATCHDOG=1");
  EXPECT_EQ(Receive(), "READY=1\nWATCHDOG=1\nSTATUS=leaves");
}

TEST_F(ServiceReportsTest, WhatDoesNotGetOnIsNotAliveUntilItDoes) {
  ServiceReports::State state = {
      .work = StallWatch::Work{.what = "computes a step", .progress = 1, .first_factor = 1}};
  ServiceReports reports(process::ServiceManager(name_), "enrols", kPatience, &clock_);
  EXPECT_EQ(Receive(), "READY=1\nWATCHDOG=1\nSTATUS=enrols");
  reports.Watch([&state] { return state; });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Next(), "READY=1\nWATCHDOG=1\nSTATUS=computes");
  EXPECT_EQ(Next(), "STATUS=this worker hangs: it computes a step and has made no progress for 4s");
  EXPECT_EQ(Next(), "STATUS=this worker hangs: it computes a step and has made no progress for 5s");
  state.work->progress = 2;
  EXPECT_EQ(Next(), "READY=1\nWATCHDOG=1\nSTATUS=computes");
  // The worker may wait for other processes without a limit.
  state = {.standing = "waits for b", .work = std::nullopt};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Next(), "READY=1\nWATCHDOG=1\nSTATUS=waits for b");
  }
}

}  // namespace
}  // namespace lodestar::worker
