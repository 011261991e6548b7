// SPDX-License-Identifier: Apache-2.0

#include "server/page_orders.h"

#include <map>
#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An order with a bad form is refused before it reaches the coordinator, so the test needs no
// coordinator.
TEST(PageOrdersTest, RefusesFieldsThatAnOrderDoesNotTake) {
  const http::JobOrders orders = PageOrders(/*strand=*/nullptr);
  const std::map<std::string, http::HttpQuery> forms = {
      {"pause", {{R"({"confirm":false)", ""}}},
      {"resume", {{"reason", "lunch"}}},
      {"checkpoint", {{"to", "/backups"}}},
      {"set-learning-rate", {{"rate", "1e-4"}, {"reason", "lunch"}}},
      {"evict", {{"worker", "a"}, {"certificate", "1"}}},
      {"readmit", {{"name", "a"}}},
      {"stop", {{"resaon", "enough"}}},
  };
  ASSERT_EQ(orders.size(), forms.size());
  for (const auto& [name, form] : forms) {
    EXPECT_THAT(
        orders.at(name)(form, "operator otto"),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 testing::AnyOf(HasSubstr(form.begin()->first), HasSubstr(form.rbegin()->first))))
        << name;
  }
}

TEST(PageOrdersTest, RefusesLongTexts) {
  const http::JobOrders orders = PageOrders(/*strand=*/nullptr);
  for (const char* name : {"pause", "stop", "evict"}) {
    EXPECT_THAT(orders.at(name)({{"reason", std::string(257, 'x')}}, ""),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("reason"), HasSubstr("257"), HasSubstr("256"))));
  }
}

}  // namespace
}  // namespace lodestar::server
