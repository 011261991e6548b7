// SPDX-License-Identifier: Apache-2.0

// One end of the data path, as a separate process. data_path.py starts a server and one or more
// workers, and sends them commands, one per line of standard input. Every command is answered by
// one line.
//
//   server: `open ROUND WORKERS` opens a round                      -> ok
//   worker: `tcp`, `tcp_both`, `message`, `push ROUND`, `pull VERSION`, `both ROUND`,
//           `checked_push WORKERS`, `checked_pull WORKERS`, `checked_both WORKERS`
//                                                      -> ok, when it is done
//           `copy` copies the tensor once, on one thread            -> seconds
//           `parts` (parts.h)     -> NAME=SECONDS for each part, per GB of fp32
//   both:   `usage` -> CPU seconds, resident anonymous MiB, resident shared MiB, peak resident MiB,
//                      system CPU seconds, user CPU seconds, context switches
//           `congestion` -> the congestion controls of its TCP sockets

#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/job/job_spec.h"
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/process/process_setup.h"
#include "common/runtime/check.h"
#include "common/security/credentials.h"
#include "kernels/factory/device_factory.h"
#include "proto/bulk_options.h"
#include "proto/transport_security.h"
#include "tests/bench/data_path/checked_tcp.h"
#include "tests/bench/data_path/congestion_control.h"
#include "tests/bench/data_path/one_message.h"
#include "tests/bench/data_path/parts.h"
#include "tests/bench/data_path/raw_tcp.h"
#include "tests/cluster/shard_server.h"
#include "worker/client/bulk_grpc_transport.h"
#include "worker/trainer/exchange_state.h"

ABSL_FLAG(std::string, role, "server", "server or worker");
ABSL_FLAG(int64_t, megabytes, 100, "size of the tensor, in 10^6 bytes of fp32");
ABSL_FLAG(std::string, parameter_server, "", "worker: address of the parameter server");
ABSL_FLAG(std::string, message_server, "", "worker: address of the server of one big message");
ABSL_FLAG(int, tcp_port, 0, "worker: port of the server of raw bytes");
ABSL_FLAG(int, tcp_both_port, 0, "worker: port of the server that answers raw bytes with as many");
ABSL_FLAG(int, checked_tcp_port, 0, "worker: port of the server of checked_tcp.h");
ABSL_FLAG(int, worker, 1, "worker: its id, from 1");
ABSL_FLAG(bool, shared_memory, false, "worker: payloads through shared memory");
ABSL_FLAG(std::string, push_encoding, "fp32", "of contributions, with error feedback");
ABSL_FLAG(std::string, pull_encoding, "fp32", "of weights");
ABSL_FLAG(std::string, credentials, "",
          "folder for certificates, which the server makes: TLS; empty: plain text");
ABSL_FLAG(std::string, congestion, "",
          "congestion control of all TCP sockets; empty: the system's");

namespace lodestar {
namespace {

constexpr int64_t kWidth = 1000;

params::Layout TensorLayout() {
  const int64_t elements = absl::GetFlag(FLAGS_megabytes) * 1'000'000 / sizeof(float);
  LODESTAR_CHECK(elements >= kWidth) << "--megabytes=" << absl::GetFlag(FLAGS_megabytes);
  absl::StatusOr<params::Layout> layout =
      params::Layout::FromTensors({{"w", {elements / kWidth, kWidth}, 0, 0, false, {}}});
  LODESTAR_CHECK(layout.ok()) << layout.status().ToString();
  return *std::move(layout);
}

params::Encoding Parsed(absl::string_view flag, const std::string& name) {
  const absl::StatusOr<params::Encoding> encoding = params::ParseEncoding(flag, name);
  LODESTAR_CHECK(encoding.ok()) << encoding.status().ToString();
  return *encoding;
}

params::Encoding PullEncoding() {
  return Parsed("pull_encoding", absl::GetFlag(FLAGS_pull_encoding));
}

void SetEncodings(job::JobSpec& job) {
  job.push_encoding = Parsed("push_encoding", absl::GetFlag(FLAGS_push_encoding));
  job.pull_encoding = PullEncoding();
  job.feedback_decay = job::DefaultFeedbackDecay(job.push_encoding);
}

// Writes the credentials of the server and of the workers, each into a folder.
void MakeCredentials(const std::string& folder) {
  const absl::Time now = absl::Now();
  const security::Validity validity{now - absl::Minutes(1), now + absl::Hours(24)};
  security::Authority authority;
  authority.key = security::NewPrivateKey();
  authority.certificate = security::MakeAuthority(authority.key, validity).value();
  for (const security::Role role : {security::Role::kServer, security::Role::kWorker}) {
    security::Credentials credentials;
    credentials.key = security::NewPrivateKey();
    credentials.authority = authority.certificate;
    const std::string name(security::RoleName(role));
    credentials.certificate =
        security::IssueCertificate(authority,
                                   security::MakeCertificateRequest(credentials.key).value(),
                                   {role, name, "1"}, validity)
            .value();
    const absl::Status written =
        security::WriteCredentials(absl::StrCat(folder, "/", name), credentials);
    LODESTAR_CHECK(written.ok()) << written;
  }
}

wire::TransportSecurity SecurityOf(security::Role role) {
  const std::string folder = absl::GetFlag(FLAGS_credentials);
  if (folder.empty()) return wire::TransportSecurity();
  return wire::TransportSecurity(
      security::CredentialFilesIn(absl::StrCat(folder, "/", security::RoleName(role))));
}

// Returns a number from /proc/self/status, in MiB.
int64_t MemoryFact(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) / 1024;
  }
  return 0;
}

std::string Usage() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
  const double system = seconds(usage.ru_stime);
  const double user = seconds(usage.ru_utime);
  return absl::StrJoin(
      std::make_tuple(system + user, MemoryFact("RssAnon"), MemoryFact("RssShmem"),
                      MemoryFact("VmHWM"), system, user, usage.ru_nvcsw + usage.ru_nivcsw),
      " ");
}

// Calls answer(words) for every line until the input ends. Commands of both ends are answered here.
template <typename Answer>
void Serve(const Answer& answer) {
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "usage") {
      std::cout << Usage();
    } else if (words[0] == "congestion") {
      std::cout << absl::StrJoin(CongestionControls(), " ");
    } else {
      std::cout << answer(words);
    }
    std::cout << std::endl;
  }
}

void RunServer() {
  ShardServer::Config config;
  config.layout = TensorLayout();
  config.job.model = {"bench", params::ClientModelSpec{}};
  config.job.optimizer.kind = job::OptimizerKind::kSgd;
  config.job.batch_size = 1;
  SetEncodings(config.job);
  const std::string credentials = absl::GetFlag(FLAGS_credentials);
  if (!credentials.empty()) MakeCredentials(credentials);
  config.security = SecurityOf(security::Role::kServer);
  const size_t bytes = config.layout.num_elements() * sizeof(float);
  const size_t part = bytes / wire::kDataChannelsPerServer;
  RawTcpServer raw(part, RawTcpServer::Answer::kAcknowledgement);
  RawTcpServer raw_both(part, RawTcpServer::Answer::kAsManyBytes);
  OneMessageServer message;
  CheckedTcpServer checked(config.layout.num_elements(), wire::kDataChannelsPerServer);
  ShardServer server(std::move(config));
  std::cout << server.address() << " " << message.address() << " " << raw.port() << " "
            << raw_both.port() << " " << checked.port() << std::endl;
  Serve([&](const std::vector<std::string>& words) {
    LODESTAR_CHECK(words.size() == 3 && words[0] == "open") << words[0];
    constexpr double kLearningRate = 0.5;
    server.OpenRound(Round(std::stoll(words[1])), std::stoi(words[2]), kLearningRate);
    return std::string("ok");
  });
}

class BenchWorker {
 public:
  BenchWorker() {
    auto map = std::make_shared<messages::ClusterMap>();
    map->layout = TensorLayout();
    registration_.server_incarnation = 1;
    registration_.life = {WorkerId(absl::GetFlag(FLAGS_worker)), Incarnation(1)};
    const params::ElementRange all{0, map->layout.num_elements()};
    absl::StatusOr<std::vector<params::Bucket>> buckets =
        params::PlanBuckets(map->layout, {all}, params::kDefaultBucketBytes);
    LODESTAR_CHECK(buckets.ok()) << buckets.status().ToString();
    map->buckets = *std::move(buckets);
    registration_.map = std::move(map);
    gradient_.assign(all.end, 0.001f);
    weights_.assign(all.end, 0.0f);
    MakeExchange();
    client::BulkGrpcTransportConfig config;
    config.servers = {absl::GetFlag(FLAGS_parameter_server)};
    config.buckets = registration_.buckets();
    config.worker = registration_.life.worker;
    config.incarnation = registration_.life.incarnation;
    config.shared_memory = absl::GetFlag(FLAGS_shared_memory);
    config.security = SecurityOf(security::Role::kWorker);
    absl::Notification settled;
    config.on_shared_memory = [&settled](int /*shard*/, const absl::Status& status) {
      LODESTAR_CHECK(status.ok()) << status.ToString();
      settled.Notify();
    };
    const bool waits = config.shared_memory;
    transport_ = client::MakeBulkGrpcTransport(std::move(config));
    if (waits) settled.WaitForNotification();
  }

  std::string Do(const std::vector<std::string>& words) {
    const std::string& command = words[0];
    const int64_t number = words.size() > 1 ? std::stoll(words[1]) : 0;
    if (command == "copy") return Copy();
    if (command == "parts") return Parts();
    if (command == "tcp") {
      Connected(raw_, absl::GetFlag(FLAGS_tcp_port)).Send(Bytes(), wire::kChunkBytes);
    } else if (command == "tcp_both") {
      const absl::Span<char> weights(reinterpret_cast<char*>(weights_.data()), Bytes().size());
      Connected(raw_both_, absl::GetFlag(FLAGS_tcp_both_port))
          .Exchange(Bytes(), weights, wire::kChunkBytes);
    } else if (command == "checked_push") {
      CheckedPush(static_cast<int>(number));
    } else if (command == "checked_pull") {
      CheckedPull(static_cast<int>(number), num_checked_pushes_);
    } else if (command == "checked_both") {
      std::thread pulling([this, number, version = num_checked_pushes_ + 1] {
        CheckedPull(static_cast<int>(number), version);
      });
      CheckedPush(static_cast<int>(number));
      pulling.join();
    } else if (command == "message") {
      OneMessageClient(absl::GetFlag(FLAGS_message_server)).Send(Bytes());
    } else if (command == "push") {
      FinishPush(*StartPush(Round(number)));
    } else if (command == "pull") {
      Expect(StartPull(Round(number))->Wait());
    } else if (command == "both") {
      const auto push = StartPush(Round(number));
      const auto pull = StartPull(Round(number + 1));
      FinishPush(*push);
      Expect(pull->Wait());
    } else {
      LODESTAR_CHECK(false) << command;
    }
    return "ok";
  }

 private:
  static void Expect(const absl::Status& status) {
    LODESTAR_CHECK(status.ok()) << status.ToString();
  }

  absl::Span<const char> Bytes() const {
    return {reinterpret_cast<const char*>(gradient_.data()), gradient_.size() * sizeof(float)};
  }

  static RawTcpClient& Connected(std::unique_ptr<RawTcpClient>& client, int port) {
    if (client == nullptr)
      client = std::make_unique<RawTcpClient>(port, wire::kDataChannelsPerServer);
    return *client;
  }

  static CheckedTcpClient& Connected(std::unique_ptr<CheckedTcpClient>& client) {
    if (client == nullptr) {
      client = std::make_unique<CheckedTcpClient>(absl::GetFlag(FLAGS_checked_tcp_port),
                                                  wire::kDataChannelsPerServer);
    }
    return *client;
  }

  void CheckedPush(int num_workers) {
    Connected(checked_push_).Push(gradient_, num_workers);
    ++num_checked_pushes_;
  }

  void CheckedPull(int num_workers, int64_t version) {
    Connected(checked_pull_).Pull(absl::MakeSpan(weights_), num_workers, version);
    // All elements have the same value, because all gradients are equal. Only a few are checked, so
    // that the check takes no time.
    constexpr size_t kEvery = 997;
    for (size_t i = 0; i < weights_.size(); i += kEvery) {
      LODESTAR_CHECK(weights_[i] == weights_[0] && (weights_[i] < 0.0f) == (version > 0))
          << weights_[i] << " at " << i << " after " << version << " updates";
    }
  }

  std::string Copy() {
    const absl::Time start = absl::Now();
    std::memcpy(weights_.data(), gradient_.data(), gradient_.size() * sizeof(float));
    return absl::StrCat(absl::ToDoubleSeconds(absl::Now() - start));
  }

  std::string Parts() {
    const auto text = [](std::string* out, const PartTime& part) {
      absl::StrAppend(out, part.name, "=", part.seconds_per_gigabyte);
    };
    return absl::StrJoin(TimeParts(gradient_, absl::MakeSpan(weights_)), " ", text);
  }

  void MakeExchange() {
    job::JobSpec job;
    SetEncodings(job);
    auto device = factory::MakeDevice("cpu", /*threads=*/1, nullptr);
    Expect(device.status());
    device_ = *std::move(device);
    const auto view = [](std::vector<float>& vector) {
      return kernels::Buf{vector.data(), kernels::DType::kF32, static_cast<int64_t>(vector.size())};
    };
    auto exchange = trainer::ExchangeState::Create(job, registration_.layout(), device_.get(),
                                                   view(weights_), view(gradient_));
    Expect(exchange.status());
    exchange_ = *std::move(exchange);
    shadow_ = exchange_->ShadowFor(registration_);
  }

  std::unique_ptr<client::PushSession> StartPush(Round round) {
    trainer::ContributionBytes& bytes = *exchange_->contribution();
    bytes.Begin(registration_, round, /*scale=*/1.0f);
    auto session = transport_->StartPush(
        {round, messages::ContributionKind::kGradient, /*scale=*/1.0f, bytes.encoding()});
    for (const params::Bucket& bucket : registration_.buckets()) {
      bytes.Prepare(bucket);
      session->AddBucket(bucket.index, Version(round.value()), bytes.Of(bucket));
    }
    return session;
  }

  void FinishPush(client::PushSession& session) {
    const absl::StatusOr<client::PushResult> result = session.Finish();
    Expect(result.status());
    exchange_->contribution()->Commit(result->late);
  }

  std::unique_ptr<client::PullSession> StartPull(Round min_round) {
    client::PullSpec spec;
    spec.min_round = min_round;
    spec.encoding = PullEncoding();
    for (const params::Bucket& bucket : registration_.buckets()) {
      float* const weights = weights_.data() + bucket.range.begin;
      if (shadow_ != nullptr) {
        spec.targets.push_back(shadow_->TargetOf(bucket, weights));
      } else {
        spec.targets.push_back(
            {bucket.index, absl::MakeSpan(weights, static_cast<size_t>(bucket.range.size()))});
      }
    }
    if (shadow_ == nullptr) return transport_->StartPull(std::move(spec), nullptr);
    return transport_->StartPull(std::move(spec), [this](const client::PulledBucket& pulled) {
      const params::Bucket& bucket = registration_.buckets()[pulled.bucket];
      shadow_->Complete(bucket, pulled, weights_.data() + bucket.range.begin);
    });
  }

  messages::Registration registration_;
  std::vector<float> gradient_;
  std::vector<float> weights_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<trainer::ExchangeState> exchange_;
  trainer::ShadowReplica* shadow_ = nullptr;  // null means fp32
  std::unique_ptr<client::ParameterTransport> transport_;
  std::unique_ptr<RawTcpClient> raw_;
  std::unique_ptr<RawTcpClient> raw_both_;
  std::unique_ptr<CheckedTcpClient> checked_push_;
  std::unique_ptr<CheckedTcpClient> checked_pull_;
  int64_t num_checked_pushes_ = 0;
};

void RunWorker() {
  BenchWorker worker;
  std::cout << "ready" << std::endl;
  Serve([&](const std::vector<std::string>& words) { return worker.Do(words); });
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  lodestar::process::SetUpMalloc();
  lodestar::process::SetUpMutexes();
  lodestar::wire::SetUpGrpcProcess();
  absl::ParseCommandLine(argc, argv);
  lodestar::SetCongestionControl(absl::GetFlag(FLAGS_congestion));
  if (absl::GetFlag(FLAGS_role) == "server") {
    lodestar::RunServer();
  } else {
    lodestar::RunWorker();
  }
  return 0;
}
