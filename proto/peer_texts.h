// SPDX-License-Identifier: Apache-2.0

// Makes all texts in a peer's message safe to show.
#pragma once

#include <google/protobuf/message.h>

namespace lodestar::wire {

// Passes every text in `message`, and in the messages inside it, through PeerText(). Fields of type
// bytes stay unchanged.
void EscapeTexts(google::protobuf::Message* message);

}  // namespace lodestar::wire
