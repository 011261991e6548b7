// One life of a worker, as those see it who carry out its rounds.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/cluster_messages.h"
#include "worker/client/bulk_transport.h"
#include "worker/data/sample_order.h"

namespace lodestar {

struct LifeContext {
  const Registration* registration = nullptr;
  const SampleOrder* sample_order = nullptr;
  ParameterTransport* transport = nullptr;
  // True once the life is over: nobody will take what it still computes. Looked at between steps.
  std::function<bool()> is_over = [] { return false; };
  // To the same servers in the name of an earlier life of this worker, with its secret.
  std::function<std::shared_ptr<ParameterTransport>(const WorkerLife&, const std::string&)>
      transport_of = nullptr;

  // Aborted if it is over.
  absl::Status Check() const {
    return is_over() ? absl::AbortedError("this life ended while it computed") : absl::OkStatus();
  }
};

}  // namespace lodestar
