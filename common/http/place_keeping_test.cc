#include "common/http/place_keeping.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

absl::Time At(int second) { return absl::UnixEpoch() + absl::Seconds(second); }

TEST(PlaceKeepingTest, TheOldestOfTheAddressWithTheMostGoes) {
  EXPECT_EQ(ChooseToGo({{1, "a", At(0), true},
                        {2, "b", At(2), true},
                        {3, "b", At(1), true},
                        {4, "c", At(3), true}}),
            3);
}

TEST(PlaceKeepingTest, WhoIsBeingAnsweredStays) {
  EXPECT_EQ(ChooseToGo({{1, "a", At(0), false}, {2, "a", At(1), false}, {3, "b", At(2), true}}), 3);
  EXPECT_EQ(ChooseToGo({{1, "a", At(0), false}}), std::nullopt);
  EXPECT_EQ(ChooseToGo({}), std::nullopt);
}

TEST(PlaceKeepingTest, ThoseThatAreBeingAnsweredCountForTheirAddress) {
  EXPECT_EQ(ChooseToGo({{1, "a", At(0), true},
                        {2, "b", At(1), false},
                        {3, "b", At(2), false},
                        {4, "b", At(3), true}}),
            4);
}

}  // namespace
}  // namespace lodestar
