// SPDX-License-Identifier: Apache-2.0

#include "common/http/place_keeping.h"

#include <gtest/gtest.h>

namespace lodestar::http {
namespace {

absl::Time At(int second) { return absl::UnixEpoch() + absl::Seconds(second); }

TEST(PlaceKeepingTest, TheOldestOfTheAddressWithTheMostGoes) {
  EXPECT_EQ(ChooseToGo({{.id = 1, .address = "a", .since = At(0)},
                        {.id = 2, .address = "b", .since = At(2)},
                        {.id = 3, .address = "b", .since = At(1)},
                        {.id = 4, .address = "c", .since = At(3)}}),
            3);
}

TEST(PlaceKeepingTest, WhoIsBeingAnsweredStays) {
  EXPECT_EQ(ChooseToGo({{.id = 1, .address = "a", .since = At(0), .stays = true},
                        {.id = 2, .address = "a", .since = At(1), .stays = true},
                        {.id = 3, .address = "b", .since = At(2)}}),
            3);
  EXPECT_EQ(ChooseToGo({{.id = 1, .address = "a", .since = At(0), .stays = true}}), std::nullopt);
  EXPECT_EQ(ChooseToGo({}), std::nullopt);
}

TEST(PlaceKeepingTest, ThoseThatAreBeingAnsweredCountForTheirAddress) {
  EXPECT_EQ(ChooseToGo({{.id = 1, .address = "a", .since = At(0)},
                        {.id = 2, .address = "b", .since = At(1), .stays = true},
                        {.id = 3, .address = "b", .since = At(2), .stays = true},
                        {.id = 4, .address = "b", .since = At(3)}}),
            4);
}

TEST(PlaceKeepingTest, WhoIsToldSomethingGoesAfterTheOthersOfItsAddressAndBeforeOtherAddresses) {
  EXPECT_EQ(ChooseToGo({{.id = 1, .address = "a", .since = At(0), .is_told = true},
                        {.id = 2, .address = "a", .since = At(1)},
                        {.id = 3, .address = "b", .since = At(0)}}),
            2);
  EXPECT_EQ(ChooseToGo({{.id = 1, .address = "a", .since = At(2), .is_told = true},
                        {.id = 2, .address = "a", .since = At(1), .is_told = true},
                        {.id = 3, .address = "b", .since = At(0)}}),
            2);
}

}  // namespace
}  // namespace lodestar::http
