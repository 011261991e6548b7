// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/notice_course.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::notice {
namespace {

using ::testing::HasSubstr;

class NoticeCourseTest : public testing::Test {
 protected:
  // Calls OnLook() for a look that takes a second. Returns the event as text.
  std::string Look(const absl::StatusOr<std::optional<std::string>>& found) {
    const absl::Time begun = now_;
    now_ += absl::Seconds(1);
    const std::optional<NoticeCourse::Event> event = course_.OnLook(begun, now_, found);
    if (!event.has_value()) return "";
    if (const auto* warning = std::get_if<NoticeCourse::Warning>(&*event)) return warning->text;
    const auto& notice = std::get<MachineNotice>(*event);
    return absl::StrCat(notice.text, " in ", absl::FormatDuration(notice.left));
  }

  absl::Time now_ = absl::UnixEpoch();
  NoticeCourse course_{absl::Seconds(30)};
};

TEST_F(NoticeCourseTest, TheTimeCountsFromTheLastLookThatHasFoundNone) {
  EXPECT_EQ(Look(std::nullopt), "");
  now_ += absl::Seconds(10);
  EXPECT_EQ(Look(std::nullopt), "");
  now_ += absl::Seconds(2);
  // The last look without a notice began at second 11. The notice is found at second 15, 4 s later,
  // so 26 s of the 30 s are left.
  EXPECT_EQ(Look("gone"), "gone in 26s");
}

TEST_F(NoticeCourseTest, OfANoticeThatIsThereFirstNobodyKnowsSinceWhen) {
  EXPECT_EQ(Look("gone"), "gone in 29s");
}

TEST_F(NoticeCourseTest, ALongTimeWithoutAnswersLeavesNone) {
  EXPECT_EQ(Look(std::nullopt), "");
  now_ += absl::Hours(1);
  EXPECT_EQ(Look("gone"), "gone in 0");
}

TEST_F(NoticeCourseTest, TroubleIsToldOnce) {
  const absl::Status trouble = absl::UnavailableError("no route");
  EXPECT_THAT(Look(trouble), HasSubstr("--notice: the source of notices cannot be read"));
  EXPECT_EQ(Look(trouble), "");
  EXPECT_EQ(Look(std::nullopt), "");
  EXPECT_EQ(Look(trouble), "");
}

}  // namespace
}  // namespace lodestar::notice
