// SPDX-License-Identifier: Apache-2.0

#include "worker/data/text_reader.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"
#include "worker/data/token_corpus.h"

namespace lodestar::data {

absl::StatusOr<TokenCorpus> OpenText(const DataConfig& config) {
  if (config.token_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--token_bytes=", config.token_bytes, ", but ",
                                                   config.path,
                                                   " is read as text, where each byte is a token. "
                                                   "If it holds tokens, add --data_format=tokens"));
  }
  ASSIGN_OR_RETURN(TokenCorpus corpus, OpenTokenCorpus(config, {.names = NameRule::kAllOrNone}));
  RETURN_IF_ERROR(LeaveOutHeldoutCopies(&corpus));
  corpus.format = "text";
  corpus.reading = "text: each byte is a token";
  corpus.advice = "Use a model with a vocabulary of 256";
  return corpus;
}

}  // namespace lodestar::data
