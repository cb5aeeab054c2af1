// A real OpenID provider: node oidc_provider.mjs PACKAGE PORT
//
// Client credentials for `tester` (secret `s3cret/%`), tokens as JWTs for the audience `gateway`: with
// resource `urn:gateway` signed by RS256, with `urn:gateway:es` by ES256. POST /rotate makes a new pair
// of keys, which from then on sign; POST /rotate?retire also drops the old ones from the JWK set.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , modules, port] = process.argv;
const entry = join(modules, 'oidc-provider', 'lib', 'index.js');
const { default: Provider } = await import(pathToFileURL(entry));

const jwk = (kind, options, alg) => ({
  ...generateKeyPairSync(kind, options).privateKey.export({ format: 'jwk' }),
  kid: randomUUID(),
  alg,
  use: 'sig',
});
const pair = () => [
  jwk('rsa', { modulusLength: 2048 }, 'RS256'),
  jwk('ec', { namedCurve: 'P-256' }, 'ES256'),
];

let keys = pair();
let asked = 0;
const provider = () => {
  const made = new Provider(`http://127.0.0.1:${port}`, {
    clients: [
      {
        client_id: 'tester',
        client_secret: 's3cret/%',
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
      },
    ],
    jwks: { keys },
    ttl: { ClientCredentials: 600 },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => 'urn:gateway',
        getResourceServerInfo: (_, resource) => ({
          scope: 'storage.read storage.write',
          audience: 'gateway',
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: resource.endsWith(':es') ? 'ES256' : 'RS256' } },
        }),
      },
    },
  });
  return made.callback();
};

let serve = provider();
createServer((request, response) => {
  if (request.url.startsWith('/rotate')) {
    keys = request.url.endsWith('?retire') ? pair() : [...pair(), ...keys];
    serve = provider();
    response.end('{}');
  } else if (request.url === '/asked') {
    response.end(JSON.stringify(asked));
  } else {
    if (request.url === '/jwks') asked += 1;
    serve(request, response);
  }
}).listen(Number(port), '127.0.0.1');
