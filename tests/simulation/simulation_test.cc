// SPDX-License-Identifier: Apache-2.0

// Checks that seeds run without a violation, and that a seed always gives the same run.
// planted_faults.sh shows that the simulator finds faults.
#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"

namespace lodestar::simulation {
namespace {

// Number of seeds of each of the tests below, which run in parallel.
constexpr uint64_t kSeeds = 100;

void ExpectNoViolation(uint64_t first_seed) {
  for (uint64_t seed = first_seed; seed < first_seed + kSeeds; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.num_rounds = 100;
    const SimulationResult result = Simulate(options);
    EXPECT_EQ(result.violation, "")
        << "bazel-bin/tests/simulation/simulate --log --rounds=100 --seed=" << seed << " ("
        << result.scenario << ")";
    EXPECT_GE(result.rounds, options.num_rounds / 2) << seed;
  }
}

TEST(SimulationTest, SeedsFrom1) { ExpectNoViolation(1); }
TEST(SimulationTest, SeedsFrom101) { ExpectNoViolation(101); }
TEST(SimulationTest, SeedsFrom201) { ExpectNoViolation(201); }
TEST(SimulationTest, SeedsFrom301) { ExpectNoViolation(301); }

std::string ViolationOf(uint64_t seed) {
  SimulationOptions options;
  options.seed = seed;
  options.num_rounds = 200;
  return Simulate(options).violation;
}

// A checkpoint replaced a damaged one of its round and was reported as failed. A site stopped
// because of it.
TEST(SimulationTest, TakesReplacedCheckpointForWhole) { EXPECT_EQ(ViolationOf(9500795), ""); }

// The operator accepted a loss, and the servers started over before the next checkpoint. The
// cluster then took the new journal for one that lacked rounds, and waited for ever.
TEST(SimulationTest, GoesOnIfAJournalIsBegunAnewTwice) { EXPECT_EQ(ViolationOf(693), ""); }

TEST(SimulationTest, ASeedIsARunToTheBit) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    SimulationOptions options;
    options.seed = seed;
    options.num_rounds = 50;
    const SimulationResult first = Simulate(options);
    std::string told;
    options.story = [&told](absl::string_view line) { absl::StrAppend(&told, line, "\n"); };
    const SimulationResult second = Simulate(options);
    EXPECT_EQ(first.fingerprint, second.fingerprint) << seed;
    EXPECT_EQ(first.events, second.events) << seed;
    EXPECT_NE(told, "");
  }
}

}  // namespace
}  // namespace lodestar::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  lodestar::logging::InitLogging("simulation_test", lodestar::logging::LogLevel::kError);
  return RUN_ALL_TESTS();
}
