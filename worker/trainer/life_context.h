// SPDX-License-Identifier: Apache-2.0

// LifeContext is what the code that carries out rounds knows of the worker's present life.
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
  const messages::Registration* registration = nullptr;
  const data::SampleOrder* sample_order = nullptr;
  client::ParameterTransport* transport = nullptr;
  // Returns true once the life is over, because servers accept nothing from it any more. Called
  // between steps.
  std::function<bool()> is_over = [] { return false; };
  // Returns a transport to the same servers that acts for an earlier life of this worker. The
  // second argument is the secret of that life.
  std::function<std::shared_ptr<client::ParameterTransport>(const messages::WorkerLife&,
                                                            const std::string&)>
      transport_of = nullptr;

  // Returns Aborted if the life is over.
  absl::Status Check() const {
    return is_over() ? absl::AbortedError("this life ended while it computed") : absl::OkStatus();
  }
};

}  // namespace lodestar::trainer
