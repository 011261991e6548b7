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

// Returns the job of a site's workers. With mode sync, each of its rounds is one local step of
// `upstream`, and its optimizer is the inner optimizer of `upstream`. With mode local_sgd, each of
// its rounds is several local steps of `upstream`. `asked` is the job of the site's operator, of
// which only settings about how its workers exchange are used. `given` names the settings that the
// operator has given. Errors: FailedPrecondition (the job upstream cannot have sites);
// InvalidArgument (a given setting contradicts it). Each error names flag, value and what is
// allowed.
absl::StatusOr<job::JobSpec> SiteJob(const messages::Registration& upstream,
                                     const job::JobSpec& asked, const std::set<std::string>& given);

// Checks that a site that began with one job of its upstream can go on with another. Values that
// come with each grant, such as learning rates, may differ. `steps_of_order` is the number of local
// steps that the site's workers make between two of their own exchanges, at least 1. Errors:
// FailedPrecondition, naming the setting (also if the other job cannot have sites).
absl::Status CheckGoesOn(const job::JobSpec& began, const job::JobSpec& now, int steps_of_order);

}  // namespace lodestar::site
