// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/notice_watch.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace lodestar::notice {
namespace {

// Finds a notice in the look with number `look`. The second look fails. All other looks find no
// notice.
class NoticeAtLook final : public NoticeSource {
 public:
  NoticeAtLook(int look, std::atomic<int>* looks) : look_(look), looks_(looks) {}
  absl::StatusOr<std::optional<std::string>> Look() override {
    const int look = ++*looks_;
    if (look == 2) return absl::UnavailableError("away");
    return look == look_ ? std::optional<std::string>("gone") : std::nullopt;
  }

 private:
  const int look_;
  std::atomic<int>* const looks_;
};

TEST(NoticeWatchTest, LooksUntilThereIsANoticeAndTellsOfItOnce) {
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  std::atomic<int> looks = 0;
  std::atomic<int> notices = 0;
  absl::Notification noticed;
  MachineNotice told;
  {
    const NoticeWatch watch(std::make_unique<NoticeAtLook>(4, &looks),
                            {.interval = absl::Seconds(2), .grace = absl::Seconds(30)}, &clock,
                            [&](const MachineNotice& notice) {
                              told = notice;
                              ++notices;
                              noticed.Notify();
                            });
    noticed.WaitForNotification();
  }
  EXPECT_EQ(looks, 4);
  EXPECT_EQ(notices, 1);
  EXPECT_EQ(told.text, "gone");
  EXPECT_EQ(told.left, absl::Seconds(28)) << "there was none two seconds before";
}

TEST(NoticeWatchTest, EndsWithoutWaitingForTheNextLook) {
  SimulatedClock clock;
  std::atomic<int> looks = 0;
  {
    const NoticeWatch watch(std::make_unique<NoticeAtLook>(100, &looks), {}, &clock,
                            [](const MachineNotice&) { ADD_FAILURE(); });
    clock.AwaitSleepers(1);
  }
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace lodestar::notice
