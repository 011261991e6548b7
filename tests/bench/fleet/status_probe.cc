// SPDX-License-Identifier: Apache-2.0

// Asks a server for its status again and again, and prints how long each answer took, as JSON.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/runtime/check.h"
#include "proto/status_service.grpc.pb.h"

ABSL_FLAG(std::string, server, "", "HOST:PORT of the coordinator");
ABSL_FLAG(double, seconds, 5, "how long to ask");
ABSL_FLAG(absl::Duration, interval, absl::Milliseconds(20), "pause between an answer and the next");

namespace lodestar {
namespace {

int Main() {
  using Clock = std::chrono::steady_clock;
  const auto stub = v1::StatusService::NewStub(
      grpc::CreateChannel(absl::GetFlag(FLAGS_server), grpc::InsecureChannelCredentials()));
  const auto ask = [&stub] {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::ClusterStatus reply;
    const auto start = Clock::now();
    const grpc::Status status = stub->GetStatus(&context, {}, &reply);
    LODESTAR_CHECK(status.ok()) << status.error_message();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  ask();  // the first call also connects
  std::vector<double> milliseconds;
  const auto end = Clock::now() + std::chrono::duration<double>(absl::GetFlag(FLAGS_seconds));
  while (Clock::now() < end) {
    milliseconds.push_back(ask());
    std::this_thread::sleep_for(absl::ToChronoMicroseconds(absl::GetFlag(FLAGS_interval)));
  }
  std::printf("{\"status_ms\": [%s]}\n", absl::StrJoin(milliseconds, ", ").c_str());
  return 0;
}

}  // namespace
}  // namespace lodestar

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return lodestar::Main();
}
