// SPDX-License-Identifier: Apache-2.0

// Converts the fields of a job that have JobField::wire to and from the message JobSpec, by
// reflection. Fields for which JobField::wire is empty are converted in convert_job.cc.
#pragma once

#include "absl/status/status.h"
#include "common/job/job_spec.h"
#include "proto/job.pb.h"

namespace lodestar::wire {

void FieldsToProto(const job::JobSpec& job, v1::JobSpec& proto);

// Sets the fields of `job`, which must still have their defaults. Does not make the checks of
// ValidateJobSpec(). Errors: InvalidArgument naming the field of the message.
absl::Status FieldsFromProto(const v1::JobSpec& proto, job::JobSpec& job);

}  // namespace lodestar::wire
