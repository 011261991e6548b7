// The fields of a job in one table: their flags with help, the settings of checkpoints, their
// ranges, the wire, and what sites and resumed jobs make of them come from it. The functions of
// job_spec.h say which fields contradict each other.
//
// A new field is a member of JobSpec, a row of the table, and a field of the same meaning in
// proto/job.proto.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"

namespace lodestar {

// A value of a field: enums, encodings and the robust mean as text, all whole numbers but uint64_t
// as int64_t.
using JobValue = std::variant<bool, int64_t, uint64_t, double, std::string>;

struct NumberRange {
  enum class Kind : uint8_t {
    kAny,         // ValidateJobSpec() says more
    kWhole,       // whole numbers from `lowest` to `highest`
    kReal,        // from `lowest` to `highest`
    kZeroOrReal,  // ... or 0
    kBelowOne,    // 0 <= value < 1
  };
  Kind kind = Kind::kAny;
  double lowest = 0.0;
  double highest = 0.0;
};

struct JobField {
  enum class Type : uint8_t { kBool, kInt32, kInt64, kUint64, kDouble, kText };
  // What the wire means if it does not have the field: 0, unspecified, or not present.
  enum class Absent : uint8_t { kIsValue, kIsDefault, kIsRefused };
  // This says which side sets the field for the workers of a site: the servers upstream, or the
  // site itself. The site sets it always, or only if its workers make local steps.
  enum class Site : uint8_t { kUpstream, kOwn, kOwnWithLocalSteps };

  absl::string_view name;   // of the flag, without dashes, and of the setting in checkpoints
  absl::string_view group;  // title above the flag in --helpfull
  // Default of the flag, if it is not that of JobSpec.
  absl::string_view flag_default = {};
  bool takes_auto = false;  // the flag may leave the choice to the job
  NumberRange range = {};
  // Path of the field in the message JobSpec. Empty: its converter is written by hand.
  absl::string_view wire = {};
  Absent absent = Absent::kIsValue;
  // The field of the wire whose absence means that this one is absent, too. Empty: its own.
  absl::string_view absent_with = {};
  // Returns false if no value has an effect in `job`. Null means that every value has one.
  bool (*counts)(const JobSpec& job) = nullptr;
  absl::string_view counts_with = {};  // the flags that would make it count
  Site site = Site::kUpstream;
  bool is_site_state = false;      // what a site has made loses its meaning if upstream changes it
  bool is_inner_state = false;     // the state of a worker's inner optimizer depends on it
  bool is_exchange = false;        // OpenSettings may leave it to the job
  bool is_planned = false;         // `psctl plan` looks at it
  bool is_of_coordinator = false;  // servers and workers know it from the coordinator's orders only
  absl::string_view help;

  // These come from the member.
  Type type = Type::kText;
  JobValue (*get)(const JobSpec& job) = nullptr;
  // Requires a value of this type. Errors: InvalidArgument naming the flag and what is allowed.
  absl::Status (*set)(const JobField& field, const JobValue& value, JobSpec& job) = nullptr;
};

// Titles of groups.
inline constexpr absl::string_view kModelGroup = "Model and first weights";
inline constexpr absl::string_view kModeGroup = "Mode and membership";
inline constexpr absl::string_view kWireGroup = "Wire";
inline constexpr absl::string_view kOptimizerGroup = "Optimizer";
inline constexpr absl::string_view kLengthGroup = "Length, batches, evaluation";

// Value of --dropout that means what the model says.
inline constexpr double kDropoutOfModel = -1.0;

// All fields but the model itself, in the order in which checkpoints have them. Fields are set in
// this order, too: --topk needs --push_encoding.
absl::Span<const JobField> JobFields();
// Returns null if there is none of this name.
const JobField* FindJobField(absl::string_view name);

// Numbers are written so that they read back to the bit.
std::string TextOf(const JobValue& value);
// Sets a field from what TextOf() or a flag says. Errors: InvalidArgument naming the flag, `text`
// and what is wanted.
absl::Status SetFromText(const JobField& field, absl::string_view text, JobSpec& job);

// Errors: InvalidArgument naming the first flag whose number is out of range.
absl::Status CheckFieldRanges(const JobSpec& job);

}  // namespace lodestar
