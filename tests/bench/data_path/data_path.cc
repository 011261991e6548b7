// Push and pull between one worker and one server over loopback, beside plain TCP, in one run:
//
//   bazel run //tests/bench/data_path -- --megabytes=512 --repeats=5
//
// The three are interleaved, because other load on the machine comes and goes. Push includes
// checksums on both sides, the sum and the update; pull includes checksums on both sides.

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/malloc_setup.h"
#include "proto/bulk_options.h"
#include "tests/bench/data_path/raw_tcp.h"
#include "tests/cluster/shard_server.h"

ABSL_FLAG(int64_t, megabytes, 256, "size of the model, in MiB of fp32");
ABSL_FLAG(int, repeats, 5, "measurements of each kind");

namespace lodestar {
namespace {

double GigabytesPerSecond(int64_t bytes, absl::Duration elapsed) {
  return static_cast<double>(bytes) / absl::ToDoubleSeconds(elapsed) / 1e9;
}

// Of all threads of this process, which is both ends.
double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Measurements {
  double best = 0;
  double sum = 0;
  double cpu_seconds = 0;
  int count = 0;

  void Add(int64_t bytes, absl::FunctionRef<absl::Duration()> transfer) {
    const double cpu_before = CpuSeconds();
    const double rate = GigabytesPerSecond(bytes, transfer());
    cpu_seconds += CpuSeconds() - cpu_before;
    best = std::max(best, rate);
    sum += rate;
    ++count;
  }
  double mean() const { return sum / count; }
};

class DataPath {
 public:
  explicit DataPath(int64_t num_elements)
      : server_(ServerConfig(num_elements)),
        transport_(server_.Transport(WorkerId(1))),
        gradient_(num_elements, 0.0f),
        weights_(num_elements, 1.0f) {}

  absl::Duration Push(Round round) {
    server_.OpenRound(round, 1, 0.5);
    const absl::Time start = absl::Now();
    const auto session = transport_->StartPush({round, ContributionKind::kGradient, 1.0f});
    for (const Bucket& bucket : server_.buckets()) {
      session->AddBucket(bucket.index, Version(round.value()), PartOf(gradient_, bucket));
    }
    const absl::StatusOr<PushResult> result = session->Finish();
    LODESTAR_CHECK(result.ok()) << result.status().ToString();
    return absl::Now() - start;
  }

  absl::Duration Pull(Version min_version) {
    PullSpec spec{min_version, {}};
    for (const Bucket& bucket : server_.buckets()) {
      spec.targets.push_back({bucket.index, PartOf(weights_, bucket)});
    }
    const absl::Time start = absl::Now();
    const absl::Status status = transport_->StartPull(std::move(spec), nullptr)->Wait();
    LODESTAR_CHECK(status.ok()) << status.ToString();
    return absl::Now() - start;
  }

  absl::Duration Tcp() {
    const size_t bytes = gradient_.size() * sizeof(float);
    return SendOverTcp({reinterpret_cast<const char*>(gradient_.data()), bytes},
                       {reinterpret_cast<char*>(weights_.data()), bytes}, kDataChannelsPerServer,
                       kChunkBytes);
  }

 private:
  static ShardServer::Config ServerConfig(int64_t num_elements) {
    ShardServer::Config config;
    const int64_t width = 1024;
    absl::StatusOr<Layout> layout =
        Layout::FromTensors({{"w", {num_elements / width, width}, 0, 0, false, {}}});
    LODESTAR_CHECK(layout.ok()) << layout.status().ToString();
    config.layout = *std::move(layout);
    config.job.model = {"bench", ClientModelSpec{}};
    config.job.optimizer.kind = OptimizerKind::kSgd;
    config.job.batch_size = 1;
    return config;
  }

  absl::Span<float> PartOf(std::vector<float>& vector, const Bucket& bucket) {
    return absl::MakeSpan(vector).subspan(bucket.range.begin, bucket.range.size());
  }

  ShardServer server_;
  const std::unique_ptr<ParameterTransport> transport_;
  std::vector<float> gradient_;
  std::vector<float> weights_;
};

int Main() {
  const int64_t bytes = absl::GetFlag(FLAGS_megabytes) << 20;
  const int repeats = absl::GetFlag(FLAGS_repeats);
  LODESTAR_CHECK(bytes >= 4096 && repeats >= 1) << "--megabytes and --repeats must be positive";
  DataPath path(bytes / static_cast<int64_t>(sizeof(float)));
  // Touches every page and opens every connection.
  path.Push(Round(0));
  path.Pull(Version(1));
  path.Tcp();
  Measurements push, pull, tcp;
  for (int i = 1; i <= repeats; ++i) {
    tcp.Add(bytes, [&] { return path.Tcp(); });
    push.Add(bytes, [&] { return path.Push(Round(i)); });
    pull.Add(bytes, [&] { return path.Pull(Version(i + 1)); });
  }
  std::printf("%-8s %10s %10s %10s   %s\n", "path", "mean GB/s", "best GB/s", "CPU s/GB",
              "of raw TCP (best)");
  const auto print = [&](const char* name, const Measurements& measured) {
    std::printf("%-8s %10.2f %10.2f %10.2f   %.0f %%\n", name, measured.mean(), measured.best,
                measured.cpu_seconds / (1e-9 * bytes * repeats), 100 * measured.best / tcp.best);
  };
  print("tcp", tcp);
  print("push", push);
  print("pull", pull);
  return 0;
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  lodestar::SetUpMalloc();
  absl::ParseCommandLine(argc, argv);
  return lodestar::Main();
}
