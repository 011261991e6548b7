// SPDX-License-Identifier: Apache-2.0

#include "server/page_orders.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::server {
namespace {

constexpr size_t kMaxTextBytes = 256;

// Checks that the form has only fields of `fields`, with at most kMaxTextBytes each. Otherwise an
// order with a misspelt field would be obeyed without that field. Errors: InvalidArgument, naming
// the field.
absl::Status CheckForm(const http::HttpQuery& form, const std::vector<std::string>& fields) {
  for (const auto& [name, value] : form) {
    const std::string shown = PeerText(name, kMaxTextBytes);
    if (std::find(fields.begin(), fields.end(), name) == fields.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the order does not take a field named '", shown, "'; ",
                       fields.empty() ? "send it without a form"
                                      : absl::StrCat("it takes ", absl::StrJoin(fields, " and "))));
    }
    if (value.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the field '", shown, "' has ", value.size(),
                                                     " bytes; give at most ", kMaxTextBytes));
    }
  }
  return absl::OkStatus();
}

std::string FieldOf(const http::HttpQuery& form, const char* name) {
  const auto field = form.find(name);
  return field == form.end() ? "" : PeerText(field->second, kMaxTextBytes);
}

std::string WhoOrders(const std::string& caller) {
  return caller.empty() ? "the page" : absl::StrCat(caller, ", through the page,");
}

std::string ReasonIn(const http::HttpQuery& form) {
  const std::string reason = FieldOf(form, "reason");
  return reason.empty() ? "an operator asked for it on the page" : reason;
}

absl::StatusOr<double> RateIn(const http::HttpQuery& form) {
  const std::string text = FieldOf(form, "rate");
  double rate = 0.0;
  if (absl::SimpleAtod(text, &rate)) {
    RETURN_IF_ERROR(CheckNotTooSmall("the learning rate", text, rate));
    return rate;
  }
  if (text.empty())
    return absl::InvalidArgumentError("the learning rate is missing: give a number");
  return absl::InvalidArgumentError(
      absl::StrCat("the learning rate '", text, "' is not a number; give one such as 3e-4"));
}

using Order = std::function<absl::StatusOr<std::string>(coordinator::Coordinator&, absl::Time)>;

// Gives the order, and returns its outcome: see CoordinatorStrand::RunOrder().
absl::StatusOr<std::string> Give(
    rpc::CoordinatorStrand& strand, const std::string& caller, const Order& order,
    rpc::CoordinatorStrand::Unwritable unwritable = rpc::CoordinatorStrand::Unwritable::kRefuse) {
  struct Answer {
    absl::StatusOr<std::string> outcome;
    absl::Notification is_there;
  };
  const auto answer = std::make_shared<Answer>();
  strand.RunOrder(
      order,
      [answer, who = WhoOrders(caller)](absl::StatusOr<std::string> result) {
        if (!result.ok())
          logging::LogInfo("audit: the order of {} failed: {}", who, result.status().message());
        answer->outcome = std::move(result);
        answer->is_there.Notify();
      },
      unwritable);
  answer->is_there.WaitForNotification();
  return answer->outcome;
}

using PageOrder =
    std::function<absl::StatusOr<std::string>(const http::HttpQuery&, const std::string& caller)>;

PageOrder Taking(std::vector<std::string> fields, PageOrder order) {
  return
      [fields = std::move(fields), order = std::move(order)](
          const http::HttpQuery& form, const std::string& caller) -> absl::StatusOr<std::string> {
        RETURN_IF_ERROR(CheckForm(form, fields));
        return order(form, caller);
      };
}

}  // namespace

http::JobOrders PageOrders(rpc::CoordinatorStrand* strand) {
  http::JobOrders orders;
  orders["pause"] =
      Taking({"reason"}, [strand](const http::HttpQuery& form, const std::string& caller) {
        const std::string reason = ReasonIn(form);
        logging::LogInfo("audit: {} orders a pause: {}", WhoOrders(caller), reason);
        return Give(*strand, caller,
                    [&](coordinator::Coordinator& coordinator,
                        absl::Time now) -> absl::StatusOr<std::string> {
                      RETURN_IF_ERROR(coordinator.Pause(reason, now));
                      return std::string("No new round starts; the open rounds are completed.");
                    });
      });
  orders["resume"] = Taking({}, [strand](const http::HttpQuery&, const std::string& caller) {
    logging::LogInfo("audit: {} orders the job to continue", WhoOrders(caller));
    return Give(
        *strand, caller,
        [](coordinator::Coordinator& coordinator, absl::Time now) -> absl::StatusOr<std::string> {
          RETURN_IF_ERROR(coordinator.Resume(now));
          return std::string("The job continues.");
        });
  });
  orders["checkpoint"] = Taking({}, [strand](const http::HttpQuery&, const std::string& caller) {
    logging::LogInfo("audit: {} asks for a checkpoint", WhoOrders(caller));
    return Give(
        *strand, caller,
        [](coordinator::Coordinator& coordinator, absl::Time now) -> absl::StatusOr<std::string> {
          RETURN_IF_ERROR(coordinator.RequestCheckpoint(now).status());
          return std::string("A checkpoint is taken between two rounds; the events show its path.");
        });
  });
  orders["set-learning-rate"] =
      Taking({"rate"},
             [strand](const http::HttpQuery& form,
                      const std::string& caller) -> absl::StatusOr<std::string> {
               ASSIGN_OR_RETURN(const double rate, RateIn(form));
               logging::LogInfo("audit: {} orders a learning rate of {}", WhoOrders(caller), rate);
               return Give(*strand, caller,
                           [&](coordinator::Coordinator& coordinator,
                               absl::Time now) -> absl::StatusOr<std::string> {
                             ASSIGN_OR_RETURN(const coordinator::LearningRateChange change,
                                              coordinator.SetLearningRate(rate, now));
                             return absl::StrCat("The next round has ", change.after,
                                                 " instead of ", change.before, ".");
                           });
             });
  orders["evict"] = Taking(
      {"worker", "reason"}, [strand](const http::HttpQuery& form, const std::string& caller) {
        const std::string worker = FieldOf(form, "worker");
        const std::string reason = ReasonIn(form);
        logging::LogInfo("audit: {} evicts worker {}: {}", WhoOrders(caller), worker, reason);
        return Give(*strand, caller,
                    [&](coordinator::Coordinator& coordinator,
                        absl::Time now) -> absl::StatusOr<std::string> {
                      RETURN_IF_ERROR(coordinator.Evict(worker, reason, now));
                      return absl::StrCat(worker, " is evicted until it is readmitted.");
                    });
      });
  orders["readmit"] =
      Taking({"worker"}, [strand](const http::HttpQuery& form, const std::string& caller) {
        const std::string worker = FieldOf(form, "worker");
        logging::LogInfo("audit: {} readmits worker {}", WhoOrders(caller), worker);
        return Give(*strand, caller,
                    [&](coordinator::Coordinator& coordinator,
                        absl::Time now) -> absl::StatusOr<std::string> {
                      RETURN_IF_ERROR(coordinator.Readmit(worker, now));
                      return absl::StrCat(worker, " may join again; start this worker again.");
                    });
      });
  orders["stop"] = Taking({"reason"}, [strand](const http::HttpQuery& form,
                                               const std::string& caller) {
    const std::string reason = ReasonIn(form);
    logging::LogInfo("audit: {} orders the job to stop: {}", WhoOrders(caller), reason);
    // This order is accepted even while the disk is full, so that an operator can end the job
    // without freeing space first.
    return Give(
        *strand, caller,
        [&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::StatusOr<std::string> {
          coordinator.RequestStop(reason, now);
          return std::string("The job is stopping; the servers exit when it is saved.");
        },
        rpc::CoordinatorStrand::Unwritable::kTake);
  });
  return orders;
}

}  // namespace lodestar::server
