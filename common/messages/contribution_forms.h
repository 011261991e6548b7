// SPDX-License-Identifier: Apache-2.0

// Ways to store the properties of contributions. As() in json_archive.h applies such a form.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/archive/json_archive.h"
#include "common/messages/contribution.h"
#include "common/params/encoding.h"

namespace lodestar::messages {

// Stores an encoding by its name in flags.
struct EncodingForm {
  static std::string Store(params::Encoding encoding) { return params::EncodingText(encoding); }
  static absl::Status Load(const std::string& text, params::Encoding& encoding) {
    const absl::StatusOr<params::Encoding> parsed = params::ParseEncodingText("encoding", text);
    if (!parsed.ok())
      return archive::NotA(absl::StrCat("a known encoding: ", parsed.status().message()));
    encoding = *parsed;
    return absl::OkStatus();
  }
};

// Stores a kind of contribution by its name.
struct ContributionKindForm {
  static std::string Store(ContributionKind kind) {
    return std::string(ContributionKindName(kind));
  }
  static absl::Status Load(const std::string& text, ContributionKind& kind) {
    for (const ContributionKind known :
         {ContributionKind::kGradient, ContributionKind::kPseudoGradient,
          ContributionKind::kInitialWeights, ContributionKind::kWeights}) {
      if (ContributionKindName(known) != text) continue;
      kind = known;
      return absl::OkStatus();
    }
    return archive::NotA("a known kind of contribution");
  }
};

}  // namespace lodestar::messages
