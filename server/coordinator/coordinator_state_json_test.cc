// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/coordinator_state_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lodestar::coordinator {
namespace {

checkpoints::CoordinatorState SomeState() {
  checkpoints::CoordinatorState state;
  state.server_incarnation = std::numeric_limits<uint64_t>::max();
  state.ledger.next_round = 12;
  state.ledger.lost_rounds = 5;
  state.ledger.next_sample = int64_t{1} << 60;
  state.ledger.trained_samples = 3;
  state.ledger.final_evaluation_round = -1;
  state.ledger.data_sets = {{messages::DatasetInfo{"f\"00d", 10, 2, 65, false}, 7, "a"},
                            {messages::DatasetInfo{"own", 20, 0, 65, true}, int64_t{1} << 59}};
  state.ledger.rollbacks = 2;
  state.ledger.learning_rate_scale = 0.09;
  state.ledger.scale_by_operators = 0.3;
  state.membership.names = {{"a", WorkerId(1)}, {"b.c", WorkerId(3), /*was_alive=*/false}};
  state.membership.last_id = WorkerId(7);
  state.membership.last_incarnation = Incarnation((uint64_t{1} << 63) + 1);
  state.membership.view = ViewId(9);
  state.progress.loss = {0.1, Round(11), 1.0 / 3.0, std::nullopt, Round(10)};
  state.progress.trained_time = absl::Milliseconds(123456789);
  state.orders.quarantine = {{"c", "has sent what is \"long\""}, {"a", "", true}};
  return state;
}

TEST(CoordinatorStateJsonTest, KeepsEveryNumberExactly) {
  const checkpoints::CoordinatorState state = SomeState();
  const auto back = CoordinatorStateFromJson(CoordinatorStateToJson(state));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, state);
}

TEST(CoordinatorStateJsonTest, KeepsAJobWithoutData) {
  const auto back =
      CoordinatorStateFromJson(CoordinatorStateToJson(checkpoints::CoordinatorState{}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, checkpoints::CoordinatorState{});
}

TEST(CoordinatorStateJsonTest, ReadsTheOneDataSetOfVersion010) {
  const auto read = [](const char* dataset) {
    return CoordinatorStateFromJson(absl::StrCat(
        R"({"ledger":{"dataset":)", dataset,
        R"(,"final_evaluation_round":-1,"next_round":2,"next_sample":12,"trained_samples":12},)",
        R"("membership":{"last_incarnation":3,"view":1,"workers":[]},"server_incarnation":7})"));
  };
  const auto with_data =
      read(R"({"fingerprint":"f00d","num_heldout_samples":7,"num_train_samples":12,)"
           R"("own_partition":false,"tokens_per_sample":1})");
  ASSERT_TRUE(with_data.ok()) << with_data.status();
  const checkpoints::DataSetState set = {{.fingerprint = "f00d",
                                          .num_train_samples = 12,
                                          .num_heldout_samples = 7,
                                          .tokens_per_sample = 1},
                                         12};
  EXPECT_EQ(with_data->ledger.data_sets, std::vector<checkpoints::DataSetState>({set}));
  EXPECT_EQ(with_data->ledger.next_sample, 12);
  const auto without_data = read("null");
  ASSERT_TRUE(without_data.ok()) << without_data.status();
  EXPECT_TRUE(without_data->ledger.data_sets.empty());
  EXPECT_TRUE(without_data->orders.quarantine.empty()) << "nobody was shut out then";
}

TEST(CoordinatorStateJsonTest, ADivergedLossIsUnknownAfterwards) {
  checkpoints::CoordinatorState state;
  state.progress.loss.train = std::numeric_limits<double>::quiet_NaN();
  const auto back = CoordinatorStateFromJson(CoordinatorStateToJson(state));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->progress.loss.train, std::nullopt);
}

TEST(CoordinatorStateJsonTest, NamesTheFieldThatIsWrong) {
  const std::string good = CoordinatorStateToJson(SomeState());
  struct Damage {
    std::string from, to, field;
  };
  for (const Damage& damage :
       {Damage{"\"next_round\":12", "\"next_round\":-1", "next_round"},
        Damage{"\"next_round\":12", "\"next_round\":18446744073709551615", "next_round"},
        Damage{"\"next_round\":12", "\"next_rounds\":12", "next_round"},
        Damage{"\"next_round\":12", "\"next_round\":1.5", "next_round"},
        Damage{"\"id\":1", "\"id\":4294967296", "id"},
        Damage{"\"name\":\"a\"", "\"name\":7", "name"},
        Damage{"\"own_partition\":true", "\"own_partition\":1", "own_partition"},
        Damage{"\"next_sample\":7", "\"next_sample\":-7", "next_sample"},
        Damage{"\"data_sets\":[", "\"data_set\":[", "data_sets"},
        Damage{"\"train_loss\":0.1", "\"train_loss\":\"0\"", "train_loss"},
        Damage{"\"reason\":\"\"", "\"reason\":0", "reason"},
        Damage{"\"quarantine\":[", "\"quarantine\":7,\"other\":[", "quarantine"},
        Damage{"\"view\":9", "\"view\":\"9\"", "view"}}) {
    std::string bad = good;
    const size_t at = bad.find(damage.from);
    ASSERT_NE(at, std::string::npos) << damage.from;
    bad.replace(at, damage.from.size(), damage.to);
    const auto back = CoordinatorStateFromJson(bad);
    EXPECT_EQ(back.status().code(), absl::StatusCode::kDataLoss) << bad;
    EXPECT_NE(back.status().message().find(damage.field + " is not "), absl::string_view::npos)
        << back.status();
  }
}

TEST(CoordinatorStateJsonTest, SurvivesAnyTruncation) {
  const std::string good = CoordinatorStateToJson(SomeState());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(CoordinatorStateFromJson(good.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(CoordinatorStateFromJson("[]").ok());
  EXPECT_FALSE(CoordinatorStateFromJson("3").ok());
}

}  // namespace
}  // namespace lodestar::coordinator
