// SPDX-License-Identifier: Apache-2.0

// Many light-weight workers in one process. Each has a real client. It pulls the weights of its
// grant and immediately pushes gradients of random numbers. fleet.py runs this program. It prints
// one line of JSON per --report_every rounds, and one at the end.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/process/process_setup.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/client/cluster_session.h"

ABSL_FLAG(std::string, coordinator, "", "HOST:PORT of the coordinator");
ABSL_FLAG(int, workers, 2, "workers in this process");
ABSL_FLAG(double, seconds, 5, "how long to measure, from the end of the warm-up");
ABSL_FLAG(int64_t, rounds, 0, "measure so many rounds instead of --seconds");
ABSL_FLAG(int64_t, warmup, 5, "rounds before the measurement");
ABSL_FLAG(int64_t, report_every, 1 << 30, "rounds per line of progress");

namespace lodestar {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Measures the times of rounds at the first worker, and decides when to end.
class Stopwatch {
 public:
  // Records that the first worker has a grant. Returns false if enough rounds are measured.
  bool OnGrant(int64_t round) {
    const auto now = SteadyClock::now();
    const int64_t count = num_grants_++;
    if (count == absl::GetFlag(FLAGS_warmup)) start_ = now;
    if (count > absl::GetFlag(FLAGS_warmup)) {
      milliseconds_.push_back(std::chrono::duration<double, std::milli>(now - last_).count());
    }
    last_ = now;
    if (count % absl::GetFlag(FLAGS_report_every) == 0) {
      std::printf("{\"round\": %lld}\n", static_cast<long long>(round));
      std::fflush(stdout);
    }
    if (count <= absl::GetFlag(FLAGS_warmup)) return true;
    const int64_t rounds = absl::GetFlag(FLAGS_rounds);
    return rounds > 0 ? static_cast<int64_t>(milliseconds_.size()) < rounds
                      : seconds() < absl::GetFlag(FLAGS_seconds);
  }

  void Print() const {
    std::printf("{\"seconds\": %.6f, \"round_ms\": [%s]}\n", seconds(),
                absl::StrJoin(milliseconds_, ", ").c_str());
  }

 private:
  double seconds() const { return std::chrono::duration<double>(last_ - start_).count(); }

  int64_t num_grants_ = 0;
  SteadyClock::time_point start_, last_;
  std::vector<double> milliseconds_;
};

class LightWorker {
 public:
  explicit LightWorker(int index)
      : link_(client::MakeClusterSession(
            {.coordinator = net::AddressList::Of(absl::GetFlag(FLAGS_coordinator)),
             .name = absl::StrCat("light-", index),
             .device = "none",
             .instance_id = static_cast<uint64_t>(index) + 1})),
        seed_(index) {}

  absl::Status Join() {
    ASSIGN_OR_RETURN(registration_, link_->Register(/*offered=*/std::nullopt, /*process=*/{}));
    link_->StartHeartbeats(registration_.heartbeat_interval,
                           {.activity = [] { return messages::HeartbeatCall{}; },
                            .on_lost =
                                [](const absl::Status& status) {
                                  LODESTAR_CHECK(false)
                                      << "a lease was lost: " << status.ToString();
                                }});
    std::mt19937 generator(seed_);
    std::normal_distribution<float> normal(0.0f, 1e-3f);
    gradient_.resize(registration_.layout().num_elements());
    for (float& value : gradient_) value = normal(generator);
    weights_.resize(gradient_.size());
    client::BulkGrpcTransportConfig config;
    for (const messages::ServerAddress& server : registration_.servers()) {
      config.servers.push_back(server.address);
    }
    config.buckets = registration_.buckets();
    config.worker = registration_.life.worker;
    config.incarnation = registration_.life.incarnation;
    config.life_secret = registration_.life_secret;
    config.num_threads = 1;
    config.shared_memory = false;
    transport_ = client::MakeBulkGrpcTransport(std::move(config));
    return link_->Join(
        registration_.layout().hash(),
        {.fingerprint = "random numbers", .num_train_samples = 1 << 20, .num_heldout_samples = 1});
  }

  // Works until `on_grant` returns false or End() is called.
  template <typename OnGrant>
  absl::Status Work(OnGrant on_grant) {
    std::optional<messages::RoundReport> report;
    while (true) {
      ASSIGN_OR_RETURN(const messages::Grant grant,
                       link_->NextGrant(report, /*leaving=*/false, /*without_samples=*/false));
      report.reset();
      if (grant.kind == messages::Grant::Kind::kWait) continue;
      if (grant.kind != messages::Grant::Kind::kTrain || !on_grant(grant.round.value())) {
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(Pull(grant.min_round));
      RETURN_IF_ERROR(Push(grant));
      report.emplace();
      report->round = grant.round;
      report->loss_sum = 1.0;
      report->num_predictions = 1;
      report->num_samples = grant.num_samples;
      report->base_version = Version(grant.min_round.value());
    }
  }

  void End() { link_->Cancel(); }

 private:
  absl::Status Pull(Round min_round) {
    client::PullSpec spec{min_round, {}};
    for (const params::Bucket& bucket : registration_.buckets()) {
      spec.targets.push_back({bucket.index, PartOf(weights_, bucket)});
    }
    return transport_->StartPull(std::move(spec), nullptr)->Wait();
  }

  absl::Status Push(const messages::Grant& grant) {
    const auto session =
        transport_->StartPush({grant.round, messages::ContributionKind::kGradient, /*scale=*/1.0f});
    for (const params::Bucket& bucket : registration_.buckets()) {
      session->AddBucket(bucket.index, Version(grant.min_round.value()),
                         client::BytesOf(PartOf(gradient_, bucket)));
    }
    return session->Finish().status();
  }

  absl::Span<float> PartOf(std::vector<float>& vector, const params::Bucket& bucket) {
    return absl::MakeSpan(vector).subspan(bucket.range.begin, bucket.range.size());
  }

  const std::unique_ptr<client::CoordinatorLink> link_;
  const uint32_t seed_;
  messages::Registration registration_;
  std::unique_ptr<client::ParameterTransport> transport_;
  std::vector<float> gradient_;
  std::vector<float> weights_;
};

int Main() {
  std::vector<std::unique_ptr<LightWorker>> workers;
  for (int i = 0; i < absl::GetFlag(FLAGS_workers); ++i) {
    workers.push_back(std::make_unique<LightWorker>(i));
    const absl::Status joined = workers.back()->Join();
    LODESTAR_CHECK(joined.ok()) << joined.ToString();
  }
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (size_t i = 1; i < workers.size(); ++i) {
    threads.emplace_back([worker = workers[i].get(), &is_over] {
      const absl::Status status = worker->Work([&is_over](int64_t) { return !is_over.load(); });
      LODESTAR_CHECK(status.ok() || is_over) << status.ToString();
    });
  }
  Stopwatch stopwatch;
  const absl::Status status =
      workers[0]->Work([&stopwatch](int64_t round) { return stopwatch.OnGrant(round); });
  LODESTAR_CHECK(status.ok()) << status.ToString();
  stopwatch.Print();
  std::fflush(stdout);
  // The other workers wait for a round that will not open. The driver, fleet.py, ends the server.
  is_over = true;
  for (const auto& worker : workers) worker->End();
  std::quick_exit(0);
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  lodestar::process::SetUpMalloc();
  lodestar::process::SetUpMutexes();
  lodestar::wire::SetUpGrpcProcess();
  absl::ParseCommandLine(argc, argv);
  return lodestar::Main();
}
