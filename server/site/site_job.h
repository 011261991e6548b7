// SPDX-License-Identifier: Apache-2.0

// SiteJob() computes the job of a site: what the site trains for the servers upstream, and how. It
// does no I/O.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::site {

// Computes the job of a site's workers.
// - With mode sync, each of its rounds is one local step of `upstream`, and its optimizer is the
//   inner optimizer of `upstream`.
// - With mode local_sgd, each of its rounds is several local steps of `upstream`.
//
// `asked` has the settings of the site's operator. Only those about the exchange within the site
// are used. `given` has the names of the settings that the operator has set. Errors:
// FailedPrecondition (the job upstream cannot have sites); InvalidArgument (a set value contradicts
// it). Each error names flag, value and what is allowed.
absl::StatusOr<job::JobSpec> SiteJob(const messages::Registration& upstream,
                                     const job::JobSpec& asked, const std::set<std::string>& given);

// Checks that a site can go on after the job of its servers upstream has changed from `began` to
// `now`. Values that each grant brings, such as learning rates, may differ. `steps_of_order` is the
// number of local steps in an order of the site, at least 1. Errors: FailedPrecondition with the
// name of the setting, or because the job `now` cannot have sites.
absl::Status CheckGoesOn(const job::JobSpec& began, const job::JobSpec& now, int steps_of_order);

}  // namespace lodestar::site
