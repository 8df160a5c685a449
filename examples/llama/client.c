// A client and its servers, as llama.cpp's RPC backend has them: the servers are processes, each
// with a connection to the client, and do what its commands say. A token takes two sums in each
// layer.
//
//     client [servers]
//
// At the end one server is killed: the others' next sum fails, with a sentence that names it.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

enum { HIDDEN = 4096, LAYERS = 4, TOKENS = 8, MOST = 16 };

enum kind { ID, INIT, SET, ALLREDUCE, GET, FREE };
struct command {
  enum kind kind;
  uint32_t rank, world;
  int call, elements, type;
  char id[RANKS_ID];
};
struct answer {
  int ok;
  char text[RANKS_ID > 512 ? RANKS_ID : 512];  // an id, or why it failed
};

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void send_all(int fd, const void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t sent = send(fd, (const char*)data + at, bytes - at, MSG_NOSIGNAL);
    if (sent <= 0) die("client: send");
    at += (size_t)sent;
  }
}

// False: the other end is gone.
static bool receive_all(int fd, void* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t got = recv(fd, (char*)data + at, bytes - at, 0);
    if (got <= 0) return false;
    at += (size_t)got;
  }
  return true;
}

// Element i of a rank in a call: all that is summed is exact, also in bfloat16.
static float partial(uint32_t rank, int call, int i) {
  return (float)((int)(rank + 1) * (i % 5 + 1) + call % 3);
}

static float total(uint32_t world, int call, int i) {
  float sum = 0;
  for (uint32_t r = 0; r < world; ++r) sum += partial(r, call, i);
  return sum;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float element(const void* tensor, int type, int i) {
  float x;
  if (type == RANKS_F32) {
    memcpy(&x, (const float*)tensor + i, sizeof x);
    return x;
  }
  const uint32_t bits = (uint32_t)((const uint16_t*)tensor)[i] << 16;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// A server: its tensor, its rank.
static void serve(int fd) {
  float tensor[HIDDEN];
  ranks* of = NULL;
  struct command c;
  while (receive_all(fd, &c, sizeof c)) {
    struct answer answer = {.ok = 1};
    switch (c.kind) {
      case ID:
        answer.ok = ranks_id(NULL, answer.text);
        break;
      case INIT:
        of = ranks_init(c.id, c.rank, c.world);
        answer.ok = of != NULL;
        break;
      case SET:
        for (int i = 0; i < c.elements; ++i) {
          const float x = partial(c.rank, c.call, i);
          if (c.type == RANKS_F32)
            tensor[i] = x;
          else
            ((uint16_t*)tensor)[i] = to_bf16(x);
        }
        break;
      case ALLREDUCE:
        answer.ok = of != NULL && ranks_allreduce(of, tensor, c.elements, c.type);
        break;
      case GET:
        break;
      case FREE:
        ranks_free(of);
        of = NULL;
        break;
    }
    if (!answer.ok) snprintf(answer.text, sizeof answer.text, "%s", ranks_error());
    send_all(fd, &answer, sizeof answer);
    if (c.kind == GET) send_all(fd, tensor, sizeof tensor);
  }
  exit(0);
}

static int servers[MOST];
static pid_t processes[MOST];
static uint32_t world = 2;

static void ask(uint32_t server, const struct command* c) {
  struct command own = *c;
  own.rank = server;
  send_all(servers[server], &own, sizeof own);
}

static struct answer answer_of(uint32_t server) {
  struct answer answer;
  if (!receive_all(servers[server], &answer, sizeof answer)) die("client: a server is gone");
  return answer;
}

// All servers do it at once.
static void all_do(const struct command* c) {
  for (uint32_t s = 0; s < world; ++s) ask(s, c);
  for (uint32_t s = 0; s < world; ++s) {
    const struct answer answer = answer_of(s);
    if (!answer.ok) {
      fprintf(stderr, "client: server %u: %s\n", s, answer.text);
      exit(1);
    }
  }
}

// A sum, as it is in the graph of a layer; every server's result is checked.
static void sum(int call, int elements, int type) {
  struct command c = {
      .kind = SET, .world = world, .call = call, .elements = elements, .type = type};
  all_do(&c);
  c.kind = ALLREDUCE;
  all_do(&c);
  c.kind = GET;
  for (uint32_t s = 0; s < world; ++s) {
    float tensor[HIDDEN];
    ask(s, &c);
    (void)answer_of(s);
    if (!receive_all(servers[s], tensor, sizeof tensor)) die("client: a server is gone");
    for (int i = 0; i < elements; ++i) {
      if (element(tensor, type, i) != total(world, call, i)) {
        fprintf(stderr, "client: server %u, call %d: element %d is wrong\n", s, call, i);
        exit(1);
      }
    }
  }
}

int main(int argc, char** argv) {
  if (argc > 1) world = (uint32_t)strtoul(argv[1], NULL, 10);
  if (world < 2 || world > MOST) {
    fprintf(stderr, "client: 2 to %d servers\n", MOST);
    return 2;
  }
  for (uint32_t s = 0; s < world; ++s) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) die("client: socketpair");
    processes[s] = fork();
    if (processes[s] < 0) die("client: fork");
    if (processes[s] == 0) {
      for (uint32_t before = 0; before < s; ++before) close(servers[before]);
      close(pair[0]);
      serve(pair[1]);
    }
    close(pair[1]);
    servers[s] = pair[0];
  }

  struct command c = {.kind = ID, .world = world};
  ask(0, &c);
  const struct answer id = answer_of(0);
  if (!id.ok) {
    fprintf(stderr, "client: %s\n", id.text);
    return 1;
  }
  memcpy(c.id, id.text, sizeof c.id);
  c.kind = INIT;
  all_do(&c);

  int sums = 0;
  for (int token = 0; token < TOKENS; ++token) {
    for (int layer = 0; layer < LAYERS; ++layer) {
      sum(sums++, HIDDEN, RANKS_F32);       // of the attention
      sum(sums++, HIDDEN - 3, RANKS_BF16);  // of the network behind it
    }
  }

  // A type that is not summed is refused at once, and the ranks go on.
  c = (struct command){.kind = ALLREDUCE, .world = world, .elements = 32, .type = 2};
  ask(0, &c);
  if (answer_of(0).ok) return 1;
  sum(sums++, 7, RANKS_F32);

  const uint32_t last = world - 1;
  if (kill(processes[last], SIGKILL) != 0 || waitpid(processes[last], NULL, 0) < 0) die("kill");
  c = (struct command){.kind = ALLREDUCE, .world = world, .elements = HIDDEN, .type = RANKS_F32};
  char name[32];
  snprintf(name, sizeof name, "rank %u", last);
  for (uint32_t s = 0; s < last; ++s) ask(s, &c);
  for (uint32_t s = 0; s < last; ++s) {
    const struct answer answer = answer_of(s);
    if (answer.ok || strstr(answer.text, name) == NULL) {
      fprintf(stderr, "client: server %u does not say that %s died: %s\n", s, name, answer.text);
      return 1;
    }
  }
  c.kind = FREE;
  for (uint32_t s = 0; s < last; ++s) ask(s, &c);
  for (uint32_t s = 0; s < last; ++s) {
    (void)answer_of(s);
    close(servers[s]);
    if (waitpid(processes[s], NULL, 0) < 0) die("client: waitpid");
  }
  printf("%d sums of %u servers are right; they noticed that the last one died\n", sums, world);
  return 0;
}
