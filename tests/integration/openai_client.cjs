// One call of the official OpenAI client: node openai_client.cjs BASE_URL OPERATION PARAMETERS
//
// Prints one JSON document: {"result": ...}, or {"error": {name, status, message}} where the
// client raised. For streams the result is the list of the events, and an error that comes after
// the first event has it beside itself as "events".

const { OpenAI } = require("openai");

const [baseURL, operation, parameters] = process.argv.slice(2);
const client = new OpenAI({ apiKey: "unused", baseURL, maxRetries: 0, timeout: 100000 });
const operations = {
  chat: (p) => client.chat.completions.create(p),
  responses: (p) => client.responses.create(p),
  embeddings: (p) => client.embeddings.create(p),
  models: async () => (await client.models.list()).data,
};

async function main() {
  const given = JSON.parse(parameters);
  const events = [];
  try {
    let result = await operations[operation](given);
    if (given.stream) {
      for await (const event of result) events.push(event);
      result = events;
    }
    return { result };
  } catch (error) {
    const { name, status, message } = error;
    return { error: { name: error.constructor.name || name, status, message }, events };
  }
}

main().then((said) => process.stdout.write(JSON.stringify(said)));
