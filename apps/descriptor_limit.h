// The system's limit of open files, of which each connection is one.
#pragma once

namespace tw {

// Raises the soft limit, which is often 1024, as far as `max_connections` of so many descriptors
// each need and the hard limit allows. Returns how many connections fit, with a warning where these
// are fewer.
int raise_descriptor_limit(int max_connections, int descriptors_each = 1);

}  // namespace tw
