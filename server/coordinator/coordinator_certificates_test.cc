// SPDX-License-Identifier: Apache-2.0

// Tests of the limits for workers that share one certificate. A certificate may be used with many
// names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/robust_mean.h"
#include "common/testing/status_matchers.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class CoordinatorCertificatesTest : public ::testing::Test {
 protected:
  static Coordinator::Config Config(int min_workers = 1) {
    Coordinator::Config config = TestConfig(min_workers);
    config.job.global_batch_size = 0;
    config.job.batch_size = 1;
    config.job.schedule.total_rounds = 1000;
    config.checkpoint_dir = "ckpt";
    return config;
  }

  void Start(const Coordinator::Config& config = Config()) {
    cluster_.emplace(config);
    cluster_->Start();
  }
  // Registers a worker and joins. The part of `name` before the point is its certificate.
  TestWorker Add(const std::string& name) {
    return cluster_->Add(name, TestDataset(), name.substr(0, name.find('.')));
  }
  TestWorker New(const std::string& name) {
    return {name, std::hash<std::string>()(name), {}, name.substr(0, name.find('.'))};
  }
  absl::Status RegisterAndJoin(TestWorker worker) {
    const absl::Status registered = cluster_->Register(worker).status();
    return registered.ok() ? cluster_->Join(worker) : registered;
  }
  // Lets each of `workers` get a grant of a round and report it. Then all wait for the next round.
  void MakeRound(const std::vector<TestWorker>& workers) {
    for (const TestWorker& worker : workers) cluster_->Ask(worker);
    for (const TestWorker& worker : workers) {
      const GrantAnswer held = cluster_->Ask(worker);
      ASSERT_TRUE(held.grant.has_value()) << worker.name << ": " << held.pending_reason;
      cluster_->Ask(worker, CoordinatorHarness::ReportOf(*held.grant));
    }
  }
  // Gives `holder` a grant of the open round. `others` have reported this round, so they wait for
  // `holder`.
  void GiveRoundTo(const TestWorker& holder, const std::vector<TestWorker>& others) {
    // `others` may first have to report an earlier round. Then `holder` asks a second time.
    for (int i = 0; i < 2; ++i) {
      const bool has_round = cluster_->Ask(holder).grant.has_value();
      for (const TestWorker& worker : others) {
        const GrantAnswer held = cluster_->Ask(worker);
        if (!held.grant.has_value()) continue;
        cluster_->Ask(worker, CoordinatorHarness::ReportOf(*held.grant));
      }
      if (has_round) return;
    }
    FAIL() << holder.name << " gets no round";
  }
  // Gives `silent` a round that the others wait for. Then `silent` sends nothing until its lease is
  // over.
  void HoldUp(const TestWorker& silent, const std::vector<TestWorker>& others) {
    GiveRoundTo(silent, others);
    for (int i = 0; i < 4; ++i) cluster_->Pass(absl::Seconds(3), others);
    ASSERT_FALSE(IsAlive(silent));
  }
  bool IsAlive(const TestWorker& worker) {
    return cluster_->coordinator().CheckLife(worker.life).ok();
  }

  std::optional<CoordinatorHarness> cluster_;
};

TEST_F(CoordinatorCertificatesTest, NewNameRestsAfterAnotherOfItsCertificateHeldUpARound) {
  Start();
  const TestWorker a = Add("ann.1");
  MakeRound({a});
  HoldUp(Add("evil.1"), {a});
  EXPECT_THAT(RegisterAndJoin(New("evil.2")),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("'evil'")));
  EXPECT_TRUE(cluster_->Ask(a).grant.has_value()) << "the others go on";
  EXPECT_OK(RegisterAndJoin(New("bob.1"))) << "of another certificate";
  for (int i = 0; i < 4; ++i) cluster_->Pass(absl::Seconds(3), {a});
  EXPECT_OK(RegisterAndJoin(New("evil.2"))) << "the others waited for no longer";
}

TEST_F(CoordinatorCertificatesTest, LeavingWithARoundAtHandIsHoldingItUp) {
  Start();
  const TestWorker a = Add("ann.1");
  const TestWorker evil = Add("evil.1");
  GiveRoundTo(evil, {a});
  cluster_->Pass(absl::Seconds(3), {a, evil});
  ASSERT_OK(cluster_->coordinator().Leave(evil.life, "", {}, cluster_->now()));
  EXPECT_THAT(RegisterAndJoin(New("evil.2")), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CoordinatorCertificatesTest, NameWithACompletedRoundDoesNotRestForAnother) {
  Start();
  const TestWorker a = Add("ann.1");
  const TestWorker sound = Add("box.1");
  MakeRound({a, sound});
  HoldUp(Add("box.2"), {a, sound});
  EXPECT_TRUE(IsAlive(sound));
  ASSERT_OK(cluster_->coordinator().Leave(sound.life, "", {}, cluster_->now()));
  TestWorker again = New("box.1");
  again.instance_id = 4711;
  EXPECT_OK(RegisterAndJoin(again));
}

TEST_F(CoordinatorCertificatesTest, NameThatHeldUpARoundItselfMayComeBackAsAnotherProcess) {
  Start();
  const TestWorker a = Add("ann.1");
  HoldUp(Add("box.1"), {a});
  TestWorker again = New("box.1");
  again.instance_id = 4711;
  EXPECT_OK(RegisterAndJoin(again));
}

TEST_F(CoordinatorCertificatesTest, MemberWithoutWorkIsEndedWhenItsCertificateRests) {
  Start();
  const TestWorker a = Add("ann.1");
  const TestWorker evil = Add("evil.1");
  GiveRoundTo(evil, {a});
  const TestWorker next = Add("evil.2");
  cluster_->Ask(next);
  for (int i = 0; i < 4; ++i) cluster_->Pass(absl::Seconds(3), {a, next});
  EXPECT_FALSE(IsAlive(evil));
  EXPECT_FALSE(IsAlive(next));
  MakeRound({a});
}

TEST_F(CoordinatorCertificatesTest, NobodyRestsWhereTheOthersAreTooFew) {
  Coordinator::Config config = Config(2);
  config.job.keep_workers = 2;
  Start(config);
  const TestWorker a = Add("ann.1");
  HoldUp(Add("evil.1"), {a});
  EXPECT_OK(RegisterAndJoin(New("evil.2"))) << "the job would stand still without it";
}

TEST_F(CoordinatorCertificatesTest, NamesOfACertificateGrowWithItsCompletedRounds) {
  Start();
  const TestWorker first = Add("box.1");
  for (int i = 2; i <= membership::Membership::kNamesPerCertificate; ++i)
    Add(absl::StrCat("box.", i));
  EXPECT_THAT(RegisterAndJoin(New("box.17")),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("'box'"), HasSubstr("16"))));
  EXPECT_OK(RegisterAndJoin(New("ann.1"))) << "of another certificate";
  EXPECT_OK(RegisterAndJoin(New("box.5"))) << "it is in already";
  MakeRound({first});
  EXPECT_OK(RegisterAndJoin(New("box.17")));
  EXPECT_THAT(RegisterAndJoin(New("box.18")), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CoordinatorCertificatesTest, NameWithACompletedRoundComesBackThoughItsCertificateIsFull) {
  Start();
  const TestWorker known = Add("box.0");
  MakeRound({known});
  ASSERT_OK(cluster_->coordinator().Leave(known.life, "", {}, cluster_->now()));
  // The job has completed one round. This allows the certificate one more name.
  for (int i = 1; i <= membership::Membership::kNamesPerCertificate + 1; ++i)
    Add(absl::StrCat("box.", i));
  EXPECT_THAT(RegisterAndJoin(New("box.99")), StatusIs(absl::StatusCode::kUnavailable));
  TestWorker again = New("box.0");
  again.instance_id = 4711;
  EXPECT_OK(RegisterAndJoin(again));
}

TEST_F(CoordinatorCertificatesTest, JobThatWaitsForMoreWorkersAllowsAsManyNames) {
  Start(Config(membership::Membership::kNamesPerCertificate + 4));
  for (int i = 0; i < membership::Membership::kNamesPerCertificate + 4; ++i)
    Add(absl::StrCat("box.", i));
  EXPECT_THAT(RegisterAndJoin(New("box.99")), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CoordinatorCertificatesTest, TooFewCertificatesForARobustMeanAreAnAlarm) {
  Coordinator::Config config = Config(3);
  config.job.robust_mean = *job::ParseRobustMean("trimmed:1");
  for (const bool is_one_certificate : {true, false}) {
    Start(config);
    const std::string other = is_one_certificate ? "box" : "ann";
    MakeRound({Add("box.1"), Add("bob.1"), Add(absl::StrCat(other, ".2"))});
    const auto alarm = Contains(AllOf(HasSubstr("--robust_mean=trimmed:1"), HasSubstr("3")));
    if (is_one_certificate) {
      EXPECT_THAT(cluster_->observer().alarms, alarm);
    } else {
      EXPECT_THAT(cluster_->observer().alarms, Not(alarm));
    }
  }
}

TEST_F(CoordinatorCertificatesTest, EvictionWithCertificateCoversAllOfItsNames) {
  Start();
  const TestWorker a = Add("ann.1");
  const TestWorker first = Add("evil.1");
  const TestWorker second = Add("evil.2");
  Coordinator& coordinator = cluster_->coordinator();
  ASSERT_OK(coordinator.Evict("evil.1", "it holds us up", cluster_->now()));
  EXPECT_TRUE(IsAlive(second)) << "by name alone";
  ASSERT_OK_AND_ASSIGN(const std::string certificate,
                       coordinator.EvictWithCertificate("evil.2", "so does it", cluster_->now()));
  EXPECT_EQ(certificate, "evil");
  EXPECT_FALSE(IsAlive(second));
  EXPECT_TRUE(IsAlive(a));
  EXPECT_THAT(RegisterAndJoin(New("evil.3")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("psctl readmit evil")));
  EXPECT_OK(coordinator.EvictWithCertificate("ann", "by its own name", cluster_->now()).status());
  EXPECT_FALSE(IsAlive(a));
  ASSERT_OK(coordinator.Readmit("evil", cluster_->now()));
  EXPECT_OK(RegisterAndJoin(New("evil.3")));
}

TEST_F(CoordinatorCertificatesTest, WorkerWithoutACertificateHasNoneToBeEvicted) {
  Start();
  cluster_->Add("plain");
  Coordinator& coordinator = cluster_->coordinator();
  EXPECT_THAT(coordinator.EvictWithCertificate("plain", "", cluster_->now()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'plain'")));
  EXPECT_THAT(coordinator.EvictWithCertificate("nobody", "", cluster_->now()).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'nobody'")));
}

}  // namespace
}  // namespace lodestar::coordinator
