// The job of a site: what the servers upstream have it train, and how. Pure.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::site {

// The job that a site's workers have. In sync its rounds are the local steps of `upstream`, and its
// updates those of the inner optimizer there; in local_sgd its rounds are some of them each.
// `asked`: by the site's operator, whose are only settings of how its workers come together;
// `given`: those that the operator has given. Errors: FailedPrecondition if that job is none for a
// site, InvalidArgument if what was given contradicts it: each names flag, value and what is
// allowed.
absl::StatusOr<JobSpec> SiteJob(const Registration& upstream, const JobSpec& asked,
                                const std::set<std::string>& given);

// Whether a site that has begun with one job of its upstream goes on with another. What each grant
// brings, such as learning rates, may differ. `steps_of_order`: local steps that the site's workers
// make between two of their own exchanges, at least 1. Errors: FailedPrecondition naming the
// setting, also if the other job is none for a site.
absl::Status CheckGoesOn(const JobSpec& began, const JobSpec& now, int steps_of_order);

}  // namespace lodestar::site
