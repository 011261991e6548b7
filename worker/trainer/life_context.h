// SPDX-License-Identifier: Apache-2.0

// LifeContext is the information about the worker's present life that is needed to carry out
// rounds.
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
  // Returns true once the life is over. The servers accept nothing from a life that is over. Called
  // between steps.
  std::function<bool()> is_over = [] { return false; };
  // Returns a transport to the same servers that sends under an earlier life of this worker. The
  // second argument is the secret of that life.
  std::function<std::shared_ptr<client::ParameterTransport>(const messages::WorkerLife&,
                                                            const std::string&)>
      transport_of = nullptr;

  // Returns Aborted if the life is over.
  absl::Status Check() const {
    return is_over() ? absl::AbortedError("this worker's incarnation ended while it computed")
                     : absl::OkStatus();
  }
};

}  // namespace lodestar::trainer
