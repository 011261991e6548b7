// SPDX-License-Identifier: Apache-2.0

#include "tests/cluster/training_run.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "common/storage/safetensors.h"
#include "proto/status_mapping.h"
#include "proto/status_service.grpc.pb.h"
#include "server/server.h"
#include "server/site/site_job.h"
#include "site/site_uplink.h"
#include "tests/cluster/in_process_cluster.h"
#include "worker/built_in_workload.h"
#include "worker/data/testing/test_folder.h"
#include "worker/worker.h"

namespace lodestar {
namespace {

absl::StatusOr<std::unique_ptr<InProcessCluster>> StartServers(const TrainingSetup& setup) {
  server::ServerConfig config = SmallJobConfig();
  config.job = setup.job;
  config.job.min_workers = setup.num_workers + static_cast<int>(setup.sites.size());
  // The lease is long, because a worker that is only slow on a busy machine must stay in the
  // roster.
  config.cluster.lease = absl::Minutes(10);
  return InProcessCluster::Start(config, setup.num_servers);
}

using Workers = std::vector<std::unique_ptr<worker::Worker>>;

// Adds `count` workers.
absl::Status MakeWorkers(const TrainingSetup& setup, int count, const std::string& coordinator,
                         Workers& workers) {
  for (int i = 0; i < count; ++i) {
    worker::Worker::Config config;
    config.coordinator = net::AddressList::Of(coordinator);
    config.name = absl::StrCat("w", i);
    config.instance_id = i + 1;
    config.device = {.kind = "cpu", .threads = 1};
    config.life.first_backoff = absl::Milliseconds(5);
    ASSIGN_OR_RETURN(
        std::unique_ptr<worker::Worker> worker,
        worker::MakeBuiltInWorker(
            config, {.data = {.path = setup.data}, .own_partition = setup.own_partition},
            &Clock::Real()));
    workers.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

struct RunningSite {
  std::unique_ptr<site::UpstreamEntry> upstream;
  std::unique_ptr<server::Server> server;
};

absl::StatusOr<RunningSite> StartSite(const std::string& name, const job::JobSpec& asked,
                                      const std::string& upstream) {
  RunningSite site;
  site::UpstreamEntry::Config entry;
  entry.entrance.coordinator = upstream;
  entry.entrance.has_coordinator = true;
  entry.entrance.name = name;
  ASSIGN_OR_RETURN(site.upstream, site::UpstreamEntry::Await(entry, [] { return false; }));
  server::ServerConfig config = SmallJobConfig();
  config.upstream.address = upstream;
  config.cluster.lease = absl::Minutes(10);
  ASSIGN_OR_RETURN(config.job, site::SiteJob(site.upstream->registration(), asked, {}));
  server::Server::Deps deps;
  deps.num_threads = 2;
  deps.make_uplink = [entry = site.upstream.get()](site::Site* half) {
    return entry->MakeUplink(half);
  };
  ASSIGN_OR_RETURN(site.server, server::Server::Create(config, deps));
  return site;
}

// Runs each worker on a thread of its own until the job is done.
absl::Status RunWorkers(const Workers& workers) {
  std::vector<absl::Status> outcomes(workers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      outcomes[i] = workers[i]->Run();
      if (outcomes[i].ok()) return;
      // The other workers would wait for this one for ever.
      for (const std::unique_ptr<worker::Worker>& worker : workers) worker->RequestStop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) RETURN_IF_ERROR(outcome);
  return absl::OkStatus();
}

// Returns the weights of the servers. The final evaluation has pulled the last version from every
// server, so no update is under way.
absl::StatusOr<std::vector<float>> ExportWeights(const std::string& coordinator) {
  const auto stub = v1::AdminService::NewStub(
      grpc::CreateChannel(coordinator, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto reader = stub->Export(&context, {});
  std::string bytes;
  v1::ExportChunk chunk;
  while (reader->Read(&chunk)) bytes += chunk.data();
  RETURN_IF_ERROR(wire::FromGrpcStatus(reader->Finish()));
  const data::TestFolder folder;
  ASSIGN_OR_RETURN(const auto file,
                   storage::SafetensorsReader::Open(storage::FileSystem::Real(),
                                                    folder.Write("weights.safetensors", bytes)));
  std::vector<float> weights;
  for (const storage::SafetensorsTensor& tensor : file->tensors()) {
    ASSIGN_OR_RETURN(const absl::Span<const float> values, file->Floats(tensor.name));
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::vector<float>> RunTraining(const TrainingSetup& setup) {
  ASSIGN_OR_RETURN(const std::unique_ptr<InProcessCluster> cluster, StartServers(setup));
  Workers workers;
  RETURN_IF_ERROR(MakeWorkers(setup, setup.num_workers, cluster->address(), workers));
  std::vector<RunningSite> sites;
  for (const int num_workers : setup.sites) {
    std::string upstream = cluster->address();
    job::JobSpec asked = SmallJobConfig().job;
    asked.bucket_bytes = 2048;  // differs from that of its upstream
    if (setup.steps_of_upper_sites > 0) {
      job::JobSpec upper = asked;
      upper.mode = job::Mode::kLocalSgd;
      upper.local_steps = setup.steps_of_upper_sites;
      upper.outer_optimizer = job::OuterOptimizerKind::kAverage;
      ASSIGN_OR_RETURN(RunningSite site,
                       StartSite(absl::StrCat("site", sites.size()), upper, upstream));
      upstream = site.server->address();
      sites.push_back(std::move(site));
    }
    asked.min_workers = num_workers;
    ASSIGN_OR_RETURN(RunningSite site,
                     StartSite(absl::StrCat("site", sites.size()), asked, upstream));
    RETURN_IF_ERROR(MakeWorkers(setup, num_workers, site.server->address(), workers));
    sites.push_back(std::move(site));
  }
  RETURN_IF_ERROR(RunWorkers(workers));
  for (const RunningSite& site : sites) RETURN_IF_ERROR(site.server->Wait());
  return ExportWeights(cluster->address());
}

}  // namespace lodestar
