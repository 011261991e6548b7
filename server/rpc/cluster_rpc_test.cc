#include "server/rpc/cluster_rpc.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>

#include "common/version.h"
#include "server/rpc/server_fleet.h"

namespace lodestar {
namespace {

// Tells whenever it is asked for the time; the strand asks once it is entered.
class TellingClock final : public Clock {
 public:
  absl::Time Now() override {
    if (on_asked != nullptr) on_asked();
    return absl::UnixEpoch();
  }
  void Sleep(absl::Duration) override {}

  std::function<void()> on_asked;
};

CoordinatorConfig TwoServers() {
  CoordinatorConfig config;
  config.job.model = *ModelPreset("mlp");
  config.job.global_batch_size = 6;
  config.num_shards = 2;
  return config;
}

// Else a server that attaches again in between would be given up with the connection that it left.
TEST(ClusterRpcTest, AServerIsGivenUpWithItsStreamInOneStepOfTheStrand) {
  TellingClock clock;
  CoordinatorStrand strand(&clock, /*tick=*/absl::Hours(1));
  strand.Start(*Coordinator::Create(TwoServers(), clock.Now()), [](Effect) {});
  ServerFleet fleet(nullptr);
  ClusterRpc rpc({&strand, &fleet, nullptr});
  v1::AttachShardRequest request;
  request.set_wire_version(kWireVersion);
  request.set_shard(1);
  request.set_num_shards(2);
  request.set_instance_id(7);
  request.set_address("host:1");
  auto* const stream = rpc.AttachShard(nullptr, &request);
  ASSERT_NE(fleet.Find(1, 7), nullptr);

  std::optional<bool> was_attached;
  clock.on_asked = [&] { was_attached = fleet.Find(1, 7) != nullptr; };
  stream->OnDone();
  clock.on_asked = nullptr;
  EXPECT_EQ(was_attached, true) << "when the strand was entered";
  EXPECT_EQ(fleet.Find(1, 7), nullptr);
  EXPECT_EQ(strand.Run([](Coordinator& coordinator, absl::Time now) {
    return coordinator.Snapshot(now).shards[1].state;
  }),
            "missing");
}

}  // namespace
}  // namespace lodestar
