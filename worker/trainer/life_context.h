// One life of a worker, as those see it who carry out its rounds.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/messages/cluster_messages.h"
#include "worker/client/bulk_transport.h"
#include "worker/data/sample_order.h"

namespace lodestar::trainer {

struct LifeContext {
  const Registration* registration = nullptr;
  const data::SampleOrder* sample_order = nullptr;
  client::ParameterTransport* transport = nullptr;
  // Returns true once the life is over, when no server takes what it still computes. It is called
  // between steps.
  std::function<bool()> is_over = [] { return false; };
  // Returns a transport to the same servers in the name of an earlier life of this worker, with the
  // secret of that life.
  std::function<std::shared_ptr<client::ParameterTransport>(const WorkerLife&, const std::string&)>
      transport_of = nullptr;

  // Returns Aborted if the life is over.
  absl::Status Check() const {
    return is_over() ? absl::AbortedError("this life ended while it computed") : absl::OkStatus();
  }
};

}  // namespace lodestar::trainer
