// The fields of a job that JobField::wire has, to and from the message JobSpec, by reflection.
// Fields without such a path are converted in convert_job.cc.
#pragma once

#include "absl/status/status.h"
#include "common/job/job_spec.h"
#include "proto/job.pb.h"

namespace lodestar::wire {

void FieldsToProto(const JobSpec& job, v1::JobSpec& proto);

// Sets the fields of `job`, which has the defaults. Does not check what ValidateJobSpec() does.
// Errors: InvalidArgument naming the field of the message.
absl::Status FieldsFromProto(const v1::JobSpec& proto, JobSpec& job);

}  // namespace lodestar::wire
