// OpenAI's messages in the forms that a chat template can read; internal to chat_template.
#pragma once

#include "core/json.h"
#include "core/status.h"
#include "text/chat_template.h"

namespace tw {

// Members that are null are left out, as clients send them for "not given". Content parts become
// their text, joined by line ends, where the template reads strings alone; parts that are no text
// are then invalid_argument. Messages that are no objects are invalid_argument.
Expected<Json> adapt_messages(const Json& messages, const ChatTemplateForms& forms);

}  // namespace tw
