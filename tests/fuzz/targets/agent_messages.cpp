// What the agents of `tutti run` and its launcher read from each other: messages, in pieces as they
// come, and the description of the job. Refused as no messages, or the same when they are written
// again.
#include "tools/run/agent_messages.h"

#include "tests/fuzz/target.h"

namespace tutti::fuzz::agent_messages {
namespace {

void run(std::string_view input) {
  Input in(input);
  const std::size_t piece = 1 + in.byte();
  const std::string_view all = in.rest();
  std::string written;
  MessageReader reader;
  const bool fine = accepts(ErrorCode::mismatch, [&] {
    while (!in.empty()) {
      reader.add(in.take(piece));
      while (const auto message = reader.next()) written += encode(*message);
    }
  });
  require(all.starts_with(written), "messages are those that were sent");
  if (fine)
    require(all.size() - written.size() < (std::size_t{64} << 20) + 64, "the rest is one message");
  JobDescription job;
  if (accepts(ErrorCode::mismatch, [&] { job = decode_job(all); })) {
    require(decode_job(encode(job)).hosts.size() == job.hosts.size() && !job.program.empty(),
            "a job is written and read the same");
    for (const HostShare& host : job.hosts) {
      require(host.first_rank >= 0 && host.ranks >= 0 && host.first_rank + host.ranks <= job.size,
              "a host has ranks of the job");
    }
  }
}

std::vector<std::string> seeds() {
  JobDescription job;
  job.id = std::string(256, 'a');
  job.size = 4;
  job.program = {"program", "-x"};
  job.variables = {"A=1", "B="};
  job.folder = "/tmp";
  job.connect = {"ssh", "-x"};
  job.tutti = "/usr/bin/tutti";
  job.hosts = {{"node1", 1, 0, 2}, {"node2", 2, 2, 2}};
  const std::string talk = encode(Message{MessageKind::started, 1, 2, 3, ""}) +
                           encode(Message{MessageKind::output, 1, 0, 0, "a line\nanother\n"}) +
                           encode(Message{MessageKind::ended, 1, 2, 0, ""});
  return {std::string(1, '\7') + talk, std::string(1, '\xff') + encode(job)};
}

const Registered target({"agent_messages", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::agent_messages
